"""Compares the cost of mirroring: a byte relay, ``mirror``, MirrorMaker 2 and MirrorMaker 1 copy the same data.

``python -m bench`` runs the benchmark; ``bench.plan`` lists the environment variables that it reads.
"""
