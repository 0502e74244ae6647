"""Jars: fetched once, whole or not at all; and what is said when they cannot be had. No network: Ivy is played."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from mirror.sandbox import SandboxError
from mirror.sandbox.kafka import jars
from tests.sandbox.kafka.fake_java import calls, install
from tests.sandbox.support import alive, descendants, environment, eventually

FETCH = "from mirror.sandbox import jars; print(*jars.fetch('org.example', 'thing', '1.0'))"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """JAVA_HOME with the played Ivy, and an empty cache; nothing of the user's own configuration."""
    for name in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "no_proxy",
        "NO_PROXY",
        "MIRROR_IVY_SETTINGS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MIRROR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    made = install(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(made))
    return made


def test_a_jar_is_fetched_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = jars.fetch("org.example", "thing", "1.0")
    assert [path.name for path in first] == ["thing-1.0.jar"]
    assert capsys.readouterr().err.splitlines() == [
        "sandbox: fetching thing 1.0 and what it needs (only the first time)",
        "sandbox: fetched thing 1.0",
    ]
    assert jars.fetch("org.example", "thing", "1.0") == first
    assert capsys.readouterr().err == ""
    assert len(calls(home)) == 1


def test_versions_do_not_share_a_folder(home: Path) -> None:
    one, two = jars.fetch("org.example", "thing", "1.0"), jars.fetch("org.example", "thing", "2.0")
    assert {path.parent for path in one}.isdisjoint(path.parent for path in two)


def test_a_classified_jar_has_a_folder_of_its_own(home: Path) -> None:
    plain = jars.fetch("org.example", "thing", "1.0")
    assert [path.name for path in jars.fetch("org.example", "thing", "1.0", "test")] == ["thing-1.0-test.jar"]
    assert jars.fetch("org.example", "thing", "1.0") == plain
    assert len(calls(home)) == 2


def test_a_class_path_names_each_jar_once_and_has_a_logging_backend(home: Path) -> None:
    names = [Path(entry).name for entry in jars.classpath("4.3.0").split(os.pathsep)]
    assert names == ["kafka_2.13-4.3.0.jar", "slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"]
    thing = ("org.example", "thing", "1.0")
    assert jars.classpath_of([thing, thing]).count("thing-1.0.jar") == 1


def test_two_processes_fetch_once(home: Path) -> None:
    """
    1. One is in the middle of a fetch.
    2. A second asks for the same, and waits.
    3. Both get it; Ivy ran once.
    """
    (home / "behaviour").write_text("slow")
    first = subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: bool(calls(home)))
    second = subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with first, second:
        assert second.stderr is not None
        assert "waiting for another process" in second.stderr.readline()
        (home / "behaviour").write_text("ok")
        outputs = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert outputs[0] == outputs[1]
    assert outputs[0].strip().endswith("thing-1.0.jar")
    assert len(calls(home)) == 1


def test_a_killed_fetch_leaves_no_process_and_no_half_folder(home: Path, tmp_path: Path) -> None:
    (home / "behaviour").write_text("slow")
    with subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as owner:
        assert eventually(lambda: any((tmp_path / "cache").rglob("thing-1.0.jar")))
        running = descendants(owner.pid)
        assert running
        owner.kill()
    assert eventually(lambda: not any(map(alive, running)))
    assert not (tmp_path / "cache" / "jars" / "org.example" / "thing-1.0").exists()
    (home / "behaviour").write_text("ok")
    assert [path.name for path in jars.fetch("org.example", "thing", "1.0")] == ["thing-1.0.jar"]
    assert len(calls(home)) == 2


def test_on_a_terminal_there_is_a_progress_bar(home: Path) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", FETCH], stdout=subprocess.DEVNULL, stderr=theirs, env=environment(TERM="xterm")
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:
            pass  # how a terminal says end-of-file
    os.close(ours)
    assert process.returncode == 0
    assert b"1/1" in shown
    assert b"fetched thing 1.0" in shown


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("missing", "org.example:thing:1.0 is not in the Maven repository\n  remedy: check the version"),
        ("offline", "could not be fetched:\n(?s:.*)Connection refused(?s:.*)remedy: check the network"),
        ("nothing", "org.example:thing:1.0 brought no jars"),
    ],
)
def test_what_cannot_be_fetched(home: Path, tmp_path: Path, behaviour: str, said: str) -> None:
    (home / "behaviour").write_text(behaviour)
    with pytest.raises(SandboxError, match=said):
        jars.fetch("org.example", "thing", "1.0")
    assert list((tmp_path / "cache" / "jars" / "org.example").iterdir()) == []


def test_no_pyspark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SandboxError, match=r"pyspark is not installed(?s:.*)pip install '\.\[audit\]'"):
        jars.fetch("org.example", "thing", "1.0")


def test_a_pyspark_without_ivy(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModuleSpec("pyspark", None, origin=str(tmp_path / "pyspark" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(SandboxError, match=r"no ivy-\*\.jar in .*pyspark/jars"):
        jars.fetch("org.example", "thing", "1.0")


def test_pyspark_is_found_without_being_imported(home: Path) -> None:
    code = f"{FETCH}; import sys; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16"])
def test_java_too_old(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / version, version=version)))
    major = version.removeprefix("1.").split(".")[0]
    with pytest.raises(
        SandboxError, match=f"is Java {major}; Kafka's brokers need 17 or newer\n  remedy: install Java 17"
    ):
        jars.fetch("org.example", "thing", "1.0")


@pytest.mark.parametrize("version", ["17", "21.0.2", "25-ea"])
def test_java_new_enough(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / version, version=version)))
    assert jars.fetch("org.example", "thing", "1.0")


def test_no_java(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"Java is not installed(?s:.*)set JAVA_HOME"):
        jars.fetch("org.example", "thing", "1.0")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SandboxError, match=r"JAVA_HOME is .*nowhere, but .* is not a program"):
        jars.fetch("org.example", "thing", "1.0")


def test_a_java_that_says_nothing_of_use(home: Path) -> None:
    (home / "bin" / "java").write_text("#!/bin/sh\necho what\n")
    with pytest.raises(SandboxError, match="names no version: 'what'"):
        jars.fetch("org.example", "thing", "1.0")


def test_a_cache_that_cannot_be_written(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MIRROR_CACHE", str(tmp_path / "file"))
    with pytest.raises(SandboxError, match=r"the cache cannot be written(?s:.*)set MIRROR_CACHE"):
        jars.fetch("org.example", "thing", "1.0")


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "-x"])
def test_names_that_are_none(home: Path, name: str) -> None:
    with pytest.raises(SandboxError, match="cannot be part of a jar's name"):
        jars.fetch("org.example", name, "1.0")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIRROR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert jars.cache_folder() == Path("/somewhere/mirror")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/users/me")
    assert jars.cache_folder() == Path("/users/me/.cache/mirror")


def test_the_machines_ivy_settings_are_used(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = tmp_path / "home" / ".ivy2" / "ivysettings.xml"
    users.parent.mkdir()
    users.write_text("<ivysettings/>")
    jars.fetch("org.example", "thing", "1.0")
    assert f"-settings {users}" in calls(home)[-1]
    named = tmp_path / "settings.xml"
    named.write_text("<ivysettings/>")
    monkeypatch.setenv("MIRROR_IVY_SETTINGS", str(named))
    jars.fetch("org.example", "thing", "2.0")
    assert f"-settings {named}" in calls(home)[-1]


@pytest.mark.parametrize("namespace", ["", ' xmlns="urn:maven-settings"'])
def test_mavens_mirror_is_used(home: Path, tmp_path: Path, namespace: str) -> None:
    settings = tmp_path / "home" / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(
        f"<settings{namespace}><mirrors><mirror><mirrorOf>other</mirrorOf><url>https://no.invalid/</url></mirror>"
        "<mirror><mirrorOf>x,central</mirrorOf><url>https://mirror.invalid/a&amp;b</url></mirror></mirrors></settings>"
    )
    jars.fetch("org.example", "thing", "1.0")
    made = tmp_path / "cache" / "ivy" / "ivysettings.xml"
    assert f"-settings {made}" in calls(home)[-1]
    assert 'root="https://mirror.invalid/a&amp;b"' in made.read_text()
    settings.write_text("<settings/>")
    jars.fetch("org.example", "thing", "2.0")
    assert "-settings" not in calls(home)[-1]


def test_the_proxy_variables_reach_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:8080")
    monkeypatch.setenv("no_proxy", "localhost, .internal")
    jars.fetch("org.example", "thing", "1.0")
    assert "-Dhttps.proxyHost=proxy.invalid -Dhttps.proxyPort=8080" in calls(home)[-1]
    assert "-Dhttp.nonProxyHosts=localhost|*.internal" in calls(home)[-1]
