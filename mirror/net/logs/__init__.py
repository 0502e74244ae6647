"""Requests about a partition's log, off the data path."""
