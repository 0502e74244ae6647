"""Locates a partition: finds, reads and compares both of its logs."""
