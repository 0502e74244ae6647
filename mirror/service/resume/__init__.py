"""Halted partitions that are to go on, by an operator's word."""
