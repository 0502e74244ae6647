"""The simulation of ``offsets: mapped``."""
