"""Spark's daemon for the Python workers of tasks: it imports what they need once, and forks them.

Spark starts it as ``python -m mirror.audit.spark.daemon pyspark.worker`` (``spark.python.daemon.module``, local
sessions only). Otherwise each worker would spend half a second on imports. All loaded objects are frozen, so that no
worker's garbage collector traverses them. Planning does not use this daemon: Spark starts those workers with
``pyspark.daemon``, whatever this setting says. That module imports nothing before it forks, because libraries may start
threads. If you add an import here, check that no thread runs afterwards.
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
