"""Brokers that speak Kafka's protocol and are not Apache Kafka's. They are not installed with the tests."""
