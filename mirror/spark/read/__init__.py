"""The readers of ``kafka-raw-batches``."""
