"""Pauses and resumes partitions at an operator's request."""
