"""Measurements of the mirror beside the table of workloads: exactness, many partitions, latency."""
