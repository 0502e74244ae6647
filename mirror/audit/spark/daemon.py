"""Spark's daemon for Python workers, with what they need imported once before it forks them.

Started by Spark as ``python -m mirror.audit.spark.daemon <worker module>`` (``spark.python.daemon.module``), one for
those that read and one for each step of planning. Otherwise each worker imports half a second's worth by itself. What
is loaded is frozen, so that no worker's collector walks it.
"""

import gc
import importlib
import sys

if __name__ == "__main__":
    from pyspark.daemon import manager

    for name in sys.argv[1:2]:
        importlib.import_module(name)
        importlib.import_module("mirror.audit.read.tasks" if name == "pyspark.worker" else "mirror.audit.spark.source")
    gc.collect()
    gc.freeze()
    manager()
