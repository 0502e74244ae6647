"""Doubles for what is outside of the process: a scripted Kafka broker on loopback, and the loop that tests run in."""
