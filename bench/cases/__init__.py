"""Measurements of the mirror beside the table of workloads: exactness, idle partitions, latency."""
