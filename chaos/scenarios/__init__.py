"""All scenarios; importing this registers them, in the order of the table."""

from chaos.scenarios import network, processes

__all__ = ["network", "processes"]
