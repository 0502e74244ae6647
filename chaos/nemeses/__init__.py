"""Nemeses: faults that are drawn at random from a seed, several at once."""

from chaos.nemeses import processes  # isort: skip
from chaos.nemeses import brokers  # isort: skip
from chaos.nemeses import data  # isort: skip
from chaos.nemeses.schedule import NEMESES, Nemesis, Strike, draw

__all__ = ["NEMESES", "Nemesis", "Strike", "brokers", "data", "draw", "processes"]
