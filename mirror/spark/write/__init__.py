"""The parts of the sink."""
