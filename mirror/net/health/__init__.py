"""Observes whether clusters and brokers answer, with which errors, and how fast."""
