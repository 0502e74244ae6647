"""Spark's daemon for Python workers, which imports what they need once before it forks them.

Spark starts it as ``python -m mirror.audit.spark.daemon <worker module>`` (``spark.python.daemon.module``): one for the
workers that read, and one for each step of planning. Otherwise, each worker would spend half a second on imports. What
is loaded is frozen, so that no worker's garbage collector walks it.
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
