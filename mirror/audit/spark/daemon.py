"""Spark's daemon for the Python workers of tasks: it imports what they need once, and forks them.

Spark starts it as ``python -m mirror.audit.spark.daemon pyspark.worker`` (``spark.python.daemon.module``, local
sessions only). Otherwise each worker would spend half a second on imports. What is loaded is frozen, so that no
worker's garbage collector walks it. Planning does not use it: Spark starts those workers with ``pyspark.daemon``,
whatever this setting says. That module imports nothing before it forks, because libraries may start threads; whoever
adds an import here checks that none runs.
"""

import gc
import importlib
import sys

if __name__ == "__main__":
    from pyspark.daemon import manager

    for name in sys.argv[1:2]:
        importlib.import_module(name)
    importlib.import_module("mirror.audit.read.tasks")
    gc.collect()
    gc.freeze()
    manager()
