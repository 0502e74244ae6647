"""Every kind of batch, in every codec, from brokers of four versions to brokers of two: ``python -m tests.grid``."""
