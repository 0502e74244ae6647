"""The consumer group at the source, which shares out the partitions."""
