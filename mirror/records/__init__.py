"""Batch bytes, and nothing else: no I/O, no clock, no event loop.

``header`` names the 61 bytes, ``scan`` cuts a record set into batches, ``admit`` gives the verdict for one of them,
``identity`` and ``restamp`` give it the mirror's identity. ``mirror.relay.hot.plain`` does all four in one loop for the
batches that need nothing else.
"""
