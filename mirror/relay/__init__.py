"""Copies a flow's partitions from one cluster to the other: fetchers, partitions, sinks, and the code that locates
positions.

::

    Fetcher (source broker) ── forward() ──▶ Queue.outbox ────── Lane (connection) of a Sink (destination broker)
        ▲                                        │ acknowledged in order
        └──────── Relay: locate, doubt, halt ◀───┘

Everything runs in one thread. A coroutine that has awaited checks that ``Partition.positions`` or ``Cursor.generation``
is unchanged before it changes anything.
"""
