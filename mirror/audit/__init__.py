"""The proof: both clusters read again, every batch compared, every difference named.

``job`` runs an audit, ``command`` prints it and gives the exit code. On the way: ``bounds`` freezes what is compared,
``plan`` cuts it into tasks, ``reader`` and ``rows`` read batches and digest them, ``source`` is the Spark data source
around the two, ``compare`` joins the sides, ``classify`` names the differences.

Only ``source``, ``session``, ``compare`` and ``job`` need Spark. Nothing here is imported by the daemon, and nothing of
what is audited (relay, service) is imported here.
"""
