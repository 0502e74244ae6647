"""Compares the cost of mirroring: a byte relay, ``mirror``, MirrorMaker 2 and MirrorMaker 1 on the same data.

``python -m bench`` runs it; ``plan`` lists the environment variables that it reads.
"""
