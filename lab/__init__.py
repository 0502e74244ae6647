"""What the benchmark and the failure suite share: a network that fails on order, evidence, and a console."""
