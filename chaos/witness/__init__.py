"""Asks brokers, the group's coordinator and the kernel about a fault, without the mirror."""
