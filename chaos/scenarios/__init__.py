"""All scenarios; importing this registers them, in the order of the table."""

from chaos.scenarios import processes

__all__ = ["processes"]
