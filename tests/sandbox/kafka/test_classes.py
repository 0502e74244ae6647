"""The archive of Kafka's classes: made once, for one Java and one class path; brokers start without it, too."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mirror.sandbox import SandboxCluster, SandboxError
from mirror.sandbox.kafka import classes


class Maker:
    """Makes an archive as a JVM would: ``content`` None: none."""

    def __init__(self, content: bytes | None = b"classes") -> None:
        self.content = content
        self.paths: list[Path] = []

    def __call__(self, path: Path) -> None:
        self.paths.append(path)
        if self.content is not None:
            path.write_bytes(self.content)


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A class path of one jar, and an empty cache."""
    monkeypatch.setenv("MIRROR_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "kafka.jar"
    made.write_bytes(b"jar")
    return made


def archives(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "classes").glob("kafka-*"))


def test_it_is_made_once(jar: Path, tmp_path: Path) -> None:
    """
    1. The first who asks has it made; all the others get the same.
    2. Another version has another, and so has the same one with other jars.
    """
    make = Maker()
    first = classes.options("4.3.0", str(jar), make)
    assert [f"-XX:SharedArchiveFile={path}" for path in archives(tmp_path)] == list(first)
    assert classes.options("4.3.0", str(jar), make) == first
    assert len(make.paths) == 1
    assert classes.options("3.9.2", str(jar), make) != first
    jar.write_bytes(b"another jar")
    assert classes.options("4.3.0", str(jar), make) != first
    assert len(make.paths) == len(archives(tmp_path)) == 3


def test_two_who_ask_at_once(jar: Path) -> None:
    make = Maker()
    asked, go = threading.Event(), threading.Event()

    def slowly(path: Path) -> None:
        asked.set()
        assert go.wait(60)
        make(path)

    found: list[tuple[str, ...]] = []
    threads = [
        threading.Thread(target=lambda: found.append(classes.options("4.3.0", str(jar), slowly))) for _ in range(2)
    ]
    threads[0].start()
    assert asked.wait(60)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join()
    assert len(make.paths) == 1
    assert found[0] == found[1] != ()


def test_a_java_that_makes_none_is_not_asked_again(jar: Path) -> None:
    make = Maker(content=None)
    assert classes.options("4.3.0", str(jar), make) == classes.options("4.3.0", str(jar), make) == ()
    assert len(make.paths) == 1


def test_a_broker_that_does_not_start(jar: Path, tmp_path: Path) -> None:
    """It is tried again the next time; what was half written is gone then."""

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise SandboxError("broker 1 ended", "look")

    assert classes.options("4.3.0", str(jar), fail) == ()
    make = Maker(content=None)
    assert classes.options("4.3.0", str(jar), make) == ()
    assert len(make.paths) == 1
    assert [path.stat().st_size for path in archives(tmp_path)] == [0]


@pytest.mark.broker
def test_brokers_use_it(source_cluster: SandboxCluster) -> None:
    process = Path("/proc") / str(source_cluster.brokers[0].pid)
    options = (process / "cmdline").read_text().split("\0")
    (archive,) = (option.partition("=")[2] for option in options if option.startswith("-XX:SharedArchiveFile="))
    assert archive in (process / "maps").read_text()


def test_who_makes_one_uses_none() -> None:
    assert not classes.records(["-XX:SharedArchiveFile=x"])
    assert classes.records(["-Xmx1g", classes.recording(Path("x"))])
