"""Kafka itself: its versions, its jars, and the Java that runs them."""
