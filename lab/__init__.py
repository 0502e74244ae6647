"""Code that the benchmark and the failure suite share: a network that fails on demand, the record of evidence, and a
console."""
