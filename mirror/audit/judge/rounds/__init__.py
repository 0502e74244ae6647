"""Regions of chunks that differ are examined in rounds, a window of each at a time. No Spark."""
