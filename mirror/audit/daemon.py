"""Spark's daemon for Python workers, with what they need imported once before it forks them.

Started by Spark as ``python -m mirror.audit.daemon <worker module>`` (``spark.python.daemon.module``). Otherwise each
worker imports half a second's worth by itself. What is loaded is frozen, so that no worker's collector walks it.
"""

import gc
import importlib
import sys

if __name__ == "__main__":
    from pyspark.daemon import manager

    if sys.argv[1:2] == ["pyspark.worker"]:
        importlib.import_module("mirror.audit.tasks")
    gc.collect()
    gc.freeze()
    manager()
