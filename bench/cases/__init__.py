"""Measurements in addition to the workloads: exactness, many partitions, latency, TLS."""
