"""What is shown of a log."""

from __future__ import annotations

from pathlib import Path

from mirror.sandbox import logs


def test_from_the_first_error_on_without_the_stack(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fine = [f"10:00 [main] INFO line {number}" for number in range(100)]
    path.write_text("\n".join([*fine, "10:00 [main] ERROR it broke", "\tat some.Class(File.java:1)", "10:00 INFO end"]))
    assert logs.excerpt(path) == "    10:00 [main] ERROR it broke\n    10:00 INFO end"


def test_the_last_lines_if_nothing_looks_like_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(f"line {number}" for number in range(100)))
    shown = logs.excerpt(path).splitlines()
    assert len(shown) == 20
    assert shown[-1] == "    line 99"


def test_only_this_starts_part_counts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("ERROR of the last start: Address already in use\n")
    start = logs.size(path)
    with path.open("a") as file:
        file.write("fine\n")
    assert logs.excerpt(path, start=start) == "    fine"
    assert not logs.mentions(path, ["Address already in use"], start=start)
    assert logs.mentions(path, ["no", "Address already in use"])


def test_no_log(tmp_path: Path) -> None:
    missing = tmp_path / "log"
    assert logs.size(missing) == 0
    assert logs.excerpt(missing) == "    (nothing)"
    assert not logs.mentions(missing, ["x"])


def test_bytes_that_are_no_text_and_lines_without_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff" + b"x" * 10_000)
    assert len(logs.excerpt(path)) < 300


def test_log4j_1_gets_a_configuration(tmp_path: Path) -> None:
    assert logs.backend_options("/a/slf4j-log4j12-1.7.21.jar", tmp_path) == [
        f"-Dlog4j.configuration=file:{tmp_path / 'log4j.properties'}"
    ]
    assert (tmp_path / "log4j.properties").read_text().startswith("log4j.rootLogger=INFO, out\n")
    assert all("simpleLogger" in option for option in logs.backend_options("/a/slf4j-simple-1.jar", tmp_path))
