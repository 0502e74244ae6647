"""Parts of a relay that concern all partitions: its tasks, its connections to brokers, and partitions that end."""
