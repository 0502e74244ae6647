"""The internal topic: creates, reads and writes it, and keeps its current entries."""
