"""The consumer group at the source, which assigns the partitions to workers."""
