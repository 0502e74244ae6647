"""Fetching from the source: which partitions are asked for, how many bytes at a time, and what is done with answers."""
