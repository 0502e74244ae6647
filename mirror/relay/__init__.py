"""Copies from one cluster to the other: fetchers, partitions, sinks, and the only place that decides on a position.

::

    Fetcher (source broker) ── forward() ──▶ Queue.outbox ────── Lane (connection) of a Sink (destination broker)
        ▲                                        │ acknowledged in order
        └──────── Relay: locate, doubt, halt ◀───┘

Everything runs in one thread. Work that awaits compares ``positions`` or ``generation`` before it changes anything.
"""
