"""The flow's consumer group at the source, which assigns partitions to workers."""
