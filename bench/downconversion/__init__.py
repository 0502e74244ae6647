"""``make bench-downconversion``: KIP-283's measurements for ``mirror.legacy``: a table of chunk sizes, and a memory
test. The result is ``docs/results/DOWNCONVERSION.md``."""
