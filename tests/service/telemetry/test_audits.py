"""The last audit at a running mirror: found when it changes, and never taken for a pass if it is not this flow's."""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.audited import Compared, LastAudit, Look, write
from mirror.service.http.page.document import page
from mirror.service.telemetry import audits
from mirror.service.telemetry.audits import Audits
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.status import as_html, as_text
from mirror.service.telemetry.usage import files
from tests.service.telemetry.stage.fleets import fleet, sample, told

PASS = LastAudit(
    flow="source->destination", at_s=1_700_000_100.0, verdict="identical", success_at_s=1_700_000_100.0,
    source_id="S", destination_id="D", topics={"t": Compared(0, 5, 6)},
)  # fmt: skip
OTHER_FLOW = replace(PASS, flow="a->b")
OTHER_CLUSTER = replace(PASS, destination_id="X")


def shown(file: Path, *, ids: tuple[str, str] = ("S", "D")) -> Fleet:
    """A flow of two workers between these clusters, after a look."""
    found = fleet()
    found.cluster_ids = ids
    looked(found, str(file))
    return found


def looked(found: Fleet, file: str) -> Audits:
    made = Audits(service(found, file))
    asyncio.run(made.look())
    return made


def service(found: Fleet, file: str) -> Any:
    files = {found.flow: file} if file else {}
    flow = SimpleNamespace(fleet=found)
    return SimpleNamespace(settings=SimpleNamespace(audit_files=files), flows={found.flow: flow})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.prom"


def test_without_the_key_nothing_is_shown() -> None:
    found = fleet()
    looked(found, "")
    assert told(found)["flows"][0]["audit"] is None
    assert "last audit" not in as_text(told(found))
    assert "Last audit" not in page(told(found))
    assert (sample(found, "mirror_audit_file_usable"), sample(found, "mirror_audit_verdict")) == (None, None)


def test_a_pass(file: Path) -> None:
    write(PASS, file)
    now = told(shown(file))
    assert now["flows"][0]["audit"] == {
        "file": str(file), "problem": None, "verdict": "identical", "passed": True, "at": PASS.at_s,
        "success_at": PASS.at_s, "differences": 0,
    }  # fmt: skip
    text = "identical, 2023-11-14 22:15:00Z"
    assert f"last audit: {text}\n" in as_text(now)
    assert f'<span class="good">{text}</span>' in page(now)
    assert text in as_html(now)
    assert sample(shown(file), "mirror_audit_verdict", verdict="identical") == 1
    assert sample(shown(file), "mirror_audit_file_usable", source="source", target="destination") == 1


@pytest.mark.parametrize(
    ("last", "tone", "text"),
    [
        (
            replace(PASS, verdict="different", success_at_s=1_700_000_000.0, topics={"t": Compared(1_200, 5, 6)}),
            "bad",
            "different (1,200 found), 2023-11-14 22:15:00Z; last passed 2023-11-14 22:13:20Z",
        ),
        (
            replace(PASS, verdict="unfinished", success_at_s=None),
            "look",
            "unfinished, 2023-11-14 22:15:00Z; last passed never",
        ),
    ],
)
def test_no_pass(file: Path, last: LastAudit, tone: str, text: str) -> None:
    write(last, file)
    now = told(shown(file))
    assert f"last audit: {text}\n" in as_text(now)
    assert f'<span class="{tone}">{text}</span>' in page(now)


@pytest.mark.parametrize(
    ("last", "ids", "problem"),
    [
        (None, ("S", "D"), "there is no FILE: no audit has ended yet, or none that writes it"),
        ("x", ("S", "D"), "FILE is damaged, or was not written by mirror audit"),
        (OTHER_FLOW, ("S", "D"), "FILE is of flow a->b"),
        (OTHER_CLUSTER, ("S", "D"), "FILE is of clusters S and X, not of S and D"),
        (PASS, ("", ""), "FILE may be of other clusters: the flow has not reached both yet"),
    ],
)
def test_what_says_nothing_is_no_pass(
    file: Path, last: LastAudit | str | None, ids: tuple[str, str], problem: str
) -> None:
    """It is shown why, and none of its figures are."""
    if isinstance(last, LastAudit):
        write(last, file)
    elif last:
        file.write_text(last)
    found = shown(file, ids=ids)
    why = problem.replace("FILE", str(file))
    assert told(found)["flows"][0]["audit"] == {
        "file": str(file), "problem": why, "verdict": None, "passed": False, "at": None, "success_at": None,
        "differences": None,
    }  # fmt: skip
    assert f"last audit: unknown: {why}\n" in as_text(told(found))
    assert 'class="look">unknown: ' in page(told(found))
    assert sample(found, "mirror_audit_file_usable") == 0
    assert (sample(found, "mirror_audit_verdict"), sample(found, "mirror_audit_last_success_timestamp_seconds")) == (
        None,
        None,
    )


def test_it_is_read_when_it_changes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Read once, and not again while it stays.
    2. Replaced by a rename, with the size and time that it had: read.
    3. Gone: that is seen. Not named any more: nothing is shown.
    """
    read: list[str] = []

    def at(path: str) -> Look:
        read.append(path)
        return Look(path, PASS)

    monkeypatch.setattr(Look, "at", at)
    write(PASS, file)
    before = file.stat()
    found = fleet()
    made = looked(found, str(file))
    asyncio.run(made.look())
    assert (len(read), found.audit) == (1, Look(str(file), PASS))
    write(PASS, file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    asyncio.run(made.look())
    assert len(read) == 2
    file.unlink()
    asyncio.run(made.look())
    assert len(read) == 3
    made._service.settings.audit_files.clear()  # type: ignore[attr-defined] # as after a reload
    asyncio.run(made.look())
    assert found.audit is None


def test_a_volume_that_hangs_keeps_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on meanwhile, and its end waits for nobody; what was seen stays."""
    found, hangs = fleet(), threading.Event()
    found.audit = Look(str(file), PASS)

    def stamp(_: str) -> None:
        hangs.wait(60)

    monkeypatch.setattr(audits, "_stamp", stamp)

    async def cut() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Audits(service(found, str(file))).keep(), 0.1)

    try:
        asyncio.run(asyncio.wait_for(cut(), 10))
        assert [each.daemon for each in threading.enumerate() if each.name == "audits"] == [True]
        assert found.audit == Look(str(file), PASS)
    finally:
        hangs.set()


def test_each_file_by_itself(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hangs, one ends in an error that nobody expects: they say so, and the third one's is read."""
    monkeypatch.setattr(files, "DEADLINE_S", 0.2)
    hangs, at = threading.Event(), Look.at
    write(PASS, file)

    def look(path: str) -> Look:
        if path == "hangs":
            hangs.wait(60)
        if path == "odd":
            raise ValueError("odd")
        return at(path)

    monkeypatch.setattr(Look, "at", look)
    fleets = {name: fleet() for name in ("good", "hangs", "odd")}
    names = {"good": str(file), "hangs": "hangs", "odd": "odd"}
    told: Any = SimpleNamespace(
        settings=SimpleNamespace(audit_files=names),
        flows={name: SimpleNamespace(fleet=each) for name, each in fleets.items()},
    )
    made = Audits(told)
    try:
        for _ in range(2):
            asyncio.run(made.look())
            looks = {name: each.audit for name, each in fleets.items()}
            assert looks["good"] == Look(str(file), PASS)
            assert looks["hangs"] == Look("hangs", None, "hangs cannot be looked at: its volume does not answer")
            assert looks["odd"] == Look("odd", None, "odd cannot be looked at: odd")
    finally:
        hangs.set()
