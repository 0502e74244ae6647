"""The audit: it reads both clusters again, compares every batch and names every difference.

``job`` runs an audit; ``command`` prints its result and returns the exit code. In order: ``bounds`` freezes the offsets
to compare, ``plan`` cuts them into tasks, ``reader`` and ``rows`` read and digest batches, ``source`` wraps those two
as a Spark data source, ``compare`` joins the two sides, and ``kinds`` names the differences.

Only ``job`` and the modules in ``spark`` need Spark. The daemon imports nothing from here, and nothing here imports
what is audited (relay, service).
"""
