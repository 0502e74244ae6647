"""The parts of a raw producer."""
