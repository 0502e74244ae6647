"""Test doubles for what is outside of the process: a scripted Kafka broker on loopback, and the event loop of tests."""
