"""What the audit shares with the mirror (``records``), held against readers that share nothing with it: Kafka's own
DumpLogSegments and Kafka's own consumer, on the same logs.

A batch that the shared code drops would be dropped on both sides of an audit, and two wrong logs would look the same.
"""
