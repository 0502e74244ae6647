"""The import contracts in pyproject.toml hold: each is broken once, and the linter sees it."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
BREAKING = {
    "layers": ("mirror/net/errors.py", "import mirror.relay.relay"),
    "layers, the formats": ("mirror/records/content/opening.py", "import mirror.legacy.reading"),
    "layers, siblings": ("mirror/service/exits.py", "import mirror.audit.model.places"),
    "layers, a module in none of them": ("mirror/stray.py", ""),
    "offsetmap, its rooms": ("mirror/offsetmap/entries/pins.py", "import mirror.offsetmap.internal.ledger"),
    "offsetmap, siblings": ("mirror/offsetmap/compare/looks.py", "import mirror.offsetmap.internal.ledger"),
    "audit": ("mirror/audit/model/result.py", "import mirror.relay.halts"),
    "sandbox": ("mirror/sandbox/children/ports.py", "import mirror.wire.errors"),
    "pure, I/O": ("mirror/wire/errors.py", "import socket"),
    "pure, the old formats": ("mirror/legacy/upward.py", "import asyncio"),
    "pure, time": ("mirror/records/header.py", "import time"),
    "pure, threads": ("mirror/records/admit.py", "import threading"),
    "pure, processes": ("mirror/records/filler.py", "import subprocess"),
    "pure, the system": ("mirror/records/scan.py", "import os"),
    "shallow, a batch's content": ("mirror/relay/hot/plain.py", "import mirror.records.content.opening"),
    "shallow, the deep path": ("mirror/relay/hot/gather.py", "import mirror.relay.hot.deep"),
    "shallow, a codec": ("mirror/records/admit.py", "import zstandard"),
    "harnesses, bench": ("mirror/cli/entry.py", "import bench.report.table"),
    "harnesses, chaos": ("mirror/audit/model/places.py", "import chaos.suite.plan"),
    "harnesses, lab": ("mirror/cli/entry.py", "import lab.console"),
    "harnesses, deploy": ("mirror/cli/entry.py", "import deploy.grafana.panels"),
    "lab, what uses it": ("lab/console.py", "import chaos.errors"),
    "lab, each other": ("bench/errors.py", "import chaos.errors"),
    "harnesses, tests": ("mirror/sandbox/children/ports.py", "import tests.patience"),
}


def lint(root: Path, contract: str) -> subprocess.CompletedProcess[str]:
    """What the linter says of one contract, for the packages in ``root``."""
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [program, "--no-logo", "--contract", contract],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their configuration, to be changed."""
    root = tmp_path_factory.mktemp("contracts")
    shutil.copy(ROOT / "pyproject.toml", root)
    for name in ("mirror", "bench", "chaos", "lab", "deploy", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=lambda _, names: [
            each for each in names if "." in each and not each.endswith(".py")
        ])  # fmt: skip
    return root


def test_every_contract_is_broken_here() -> None:
    assert {what.partition(",")[0] for what in BREAKING} == {each["id"] for each in CONTRACTS}


@pytest.mark.parametrize("what", BREAKING)
def test_a_broken_contract_is_seen(copy: Path, what: str) -> None:
    contract = what.partition(",")[0]
    name, line = BREAKING[what]
    file = copy / name
    before = file.read_text() if file.exists() else None
    try:
        file.write_text(f"{before or ''}\n{line}\n")
        told = lint(copy, contract)
    finally:
        file.unlink() if before is None else file.write_text(before)
    assert told.returncode == 1, told.stdout + told.stderr
    imported = line.removeprefix("import ").split(".")
    assert (".".join(imported[: 2 if imported[0] == "mirror" else 1]) or "stray") in told.stdout


def test_unbroken(copy: Path) -> None:
    """So the copy is broken for no other reason."""
    for each in CONTRACTS:
        told = lint(copy, each["id"])
        assert told.returncode == 0, told.stdout
