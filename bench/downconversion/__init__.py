"""``make bench-downconversion``: KIP-283's measurements, of ``mirror.legacy``: its table of chunk sizes, and its memory
test. The result is ``docs/results/DOWNCONVERSION.md``."""
