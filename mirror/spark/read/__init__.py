"""The reading half of ``kafka-raw-batches``."""
