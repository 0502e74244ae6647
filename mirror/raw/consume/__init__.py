"""The parts of a raw consumer."""
