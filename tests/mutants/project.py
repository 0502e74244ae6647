"""Copies of the project, in which a mutant can live without anybody else seeing it."""

import os
import shutil
from pathlib import Path

__all__ = ["ROOT", "SEEDS", "WORKERS", "copy_to", "environment"]

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
_SETTINGS = {"PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "ci"}
SEEDS = {"SIM_RUNS": "80", "SIM_MAPPED_RUNS": "40", "SIM_SEED": "1"}
"""A tenth and a fifth of what the simulation plays by itself: its runs are the slowest tests of all."""
_PARTS = ("mirror", "tests", "bench", "chaos", "lab", "deploy", "docs", "pyproject.toml", "README.md")


def copy_to(folder: Path) -> Path:
    """What the tests need, compiled inner loop and all; what was there before goes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in _PARTS:
        part = ROOT / name
        if part.is_dir():
            shutil.copytree(part, folder / name, ignore=shutil.ignore_patterns("__pycache__", "out"))
        else:
            shutil.copy2(part, folder / name)
    return folder


def environment(root: Path) -> dict[str, str]:
    """Of a process that is to see that copy, plays few seeds, and leaves nothing behind."""
    return os.environ | _SETTINGS | SEEDS | {"PYTHONPATH": str(root)}
