"""All scenarios. Importing this package registers them, in the order of the report."""

from chaos.scenarios import processes  # isort: skip
from chaos.scenarios import brokers  # isort: skip
from chaos.scenarios import filling  # isort: skip
from chaos.scenarios import stalls  # isort: skip
from chaos.scenarios import network  # isort: skip
from chaos.scenarios import data  # isort: skip
from chaos.scenarios import hands  # isort: skip
from chaos.scenarios import rights  # isort: skip
from chaos.scenarios import disk  # isort: skip
from chaos.scenarios import numbers  # isort: skip
from chaos.scenarios import mapped  # isort: skip
from chaos.scenarios import promises  # isort: skip
from chaos.nemeses import scenarios as nemesis  # isort: skip

__all__ = [
    "brokers",
    "data",
    "disk",
    "filling",
    "hands",
    "mapped",
    "nemesis",
    "network",
    "numbers",
    "processes",
    "promises",
    "rights",
    "stalls",
]
