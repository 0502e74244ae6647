"""Whether clusters and brokers answer."""
