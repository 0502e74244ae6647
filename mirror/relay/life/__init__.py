"""A relay's parts beside its partitions: its tasks, its connections to brokers, and the partitions that end."""
