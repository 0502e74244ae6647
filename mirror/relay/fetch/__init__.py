"""Fetching from the source: which partitions to request, how many bytes at a time, and what to do with the
responses."""
