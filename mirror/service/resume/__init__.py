"""Resumes halted partitions at an operator's request."""
