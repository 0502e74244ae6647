"""The log: what a line looks like, what libraries say in it, and what is held back."""

import inspect
import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from mirror.service.log import logs


class Out(io.StringIO):
    """A stream that may claim to be a terminal."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """`configure` speaks for the whole process; other tests must not notice."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    with warnings.catch_warnings():
        yield
    root.handlers = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.fixture
def out() -> Out:
    return Out()


def test_a_line_is_one_json_object(out: Out) -> None:
    logs.configure(stream=out)
    logs.get_logger(flow="a->b").info(logs.PROGRESS, lag_records=0, partitions={"active": 3}, odd={(1, 2): b"\n"})
    (line,) = out.lines()
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("timestamp"))
    assert line == {
        "event": "progress",
        "level": "info",
        "flow": "a->b",
        "lag_records": 0,
        "partitions": {"active": 3},
        "odd": {},
    }


@given(st.dictionaries(st.text().filter(lambda key: key not in logs.IDENTITY), st.text() | st.binary() | st.floats()))
def test_any_value_leaves_one_line(values: dict[str, Any]) -> None:
    out = Out()
    logs.configure(stream=out)
    for taken in ("self", "exc_info", "stack_info", *inspect.signature(structlog.wrap_logger).parameters):
        values.pop(taken, None)
    logs.get_logger(**values).info("it")
    assert out.getvalue().endswith("\n")
    assert len(out.getvalue().split("\n")) == 2
    assert out.getvalue().isascii()
    json.loads(out.getvalue())


def test_context_variables_are_on_the_line(out: Out) -> None:
    logs.configure(stream=out)
    with structlog.contextvars.bound_contextvars(worker=1):
        logs.get_logger().info(logs.STARTED)
    assert out.lines()[0]["worker"] == 1


@pytest.mark.parametrize(
    ("terminal", "asked", "as_json"), [(False, None, True), (True, None, False), (True, True, True)]
)
def test_people_get_a_console(terminal: bool, asked: bool | None, as_json: bool) -> None:
    out = Out(terminal)
    logs.configure(json=asked, stream=out)
    logs.get_logger().info(logs.STARTED, topic="t")
    assert out.getvalue().startswith("{") is as_json
    assert ("\x1b[" in out.getvalue()) is (terminal and not as_json)


def test_no_colours_in_a_console_that_is_no_terminal(out: Out) -> None:
    logs.configure(json=False, stream=out)
    logs.get_logger().warning(logs.HALTED, topic="t", reason="gap")
    assert re.fullmatch(r"\S+Z \[warning  \] halted +reason=gap topic=t\n", out.getvalue())


def test_stdout_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logs.get_logger().info(logs.STOPPED)
    assert json.loads(capsys.readouterr().out)["event"] == "stopped"


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(out: Out, level: str, seen: list[str]) -> None:
    logger = logs.get_logger()
    logs.configure("error", stream=Out())
    logger.error("before")
    logs.configure(level, stream=out)  # a second time counts, also for loggers that were used already
    for name in ("debug", "info", "warning", "error"):
        getattr(logger, name)(name)
    assert [line["event"] for line in out.lines()] == seen == [line["level"] for line in out.lines()]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown log level 'loud': debug, info, warning or error"):
        logs.configure("loud")


@pytest.mark.parametrize("as_json", [True, False])
def test_exceptions_are_told_with_their_traceback(out: Out, as_json: bool) -> None:
    logs.configure(json=as_json, stream=out)
    try:
        raise ZeroDivisionError("by nought")
    except ZeroDivisionError:
        logs.get_logger().exception("bug")
    text = out.lines()[0]["exception"] if as_json else out.getvalue()
    assert text.startswith("Traceback") or not as_json
    assert text.rstrip().endswith("ZeroDivisionError: by nought")


# Libraries.


def test_libraries_log_alike(out: Out) -> None:
    logs.configure("debug", stream=out)
    library = logging.getLogger("library.part")
    library.setLevel(logging.DEBUG)  # some do so themselves
    library.info("chatter")
    library.warning("lost %d of %s", 1, "2")
    library.log(35, "between the levels")
    try:
        raise KeyError("k")
    except KeyError:
        library.exception("failed")
    library.setLevel(logging.NOTSET)
    first, second, third = out.lines()
    assert (first["event"], first["level"], first["logger"]) == ("lost 1 of 2", "warning", "library.part")
    assert (second["event"], second["level"]) == ("between the levels", "warning")
    assert (third["event"], third["level"]) == ("failed", "error")
    assert third["exception"].endswith("KeyError: 'k'")


def test_a_library_that_formats_wrongly_keeps_its_line(out: Out) -> None:
    logs.configure(stream=out)
    logging.getLogger("library").warning("%d left", "some")
    assert out.lines()[0]["event"] == "%d left"


def test_a_library_at_a_level_above_all(out: Out) -> None:
    logs.configure("error", stream=out)
    logging.getLogger("library").log(99, "the end")
    logging.getLogger("library").warning("not asked for")
    assert [(line["event"], line["level"]) for line in out.lines()] == [("the end", "critical")]


def test_python_warnings_are_lines_too(out: Out) -> None:
    warnings.simplefilter("always")
    logs.configure(stream=out)
    warnings.warn("old thing", stacklevel=1)
    (line,) = out.lines()
    assert line["logger"] == "py.warnings"
    assert "old thing" in line["event"]


# Repeats.


class Repeats:
    """A `RepeatLimit` of two a minute whose clock the test moves; `told` is what it says of lines held back."""

    def __init__(self) -> None:
        self.at = 100.0
        self.told: list[dict[str, Any]] = []
        self.limit = logs.RepeatLimit(
            lambda held: self.told.append(dict(held)), limit=2, interval_s=60.0, clock=lambda: self.at
        )

    def log(self, event: str = "retry", **keys: Any) -> dict[str, Any] | None:
        """The line as it is written, or None if it is held back."""
        try:
            return dict(self.limit(None, "warning", {"event": event, **keys}))
        except structlog.DropEvent:
            return None


def test_repeats_are_held_back_and_counted_on_the_next_such_line() -> None:
    repeats = Repeats()
    assert [repeats.log(topic="t", partition=1) is not None for _ in range(5)] == [True, True, False, False, False]
    repeats.at += 59.9
    assert repeats.log(topic="t", partition=1) is None
    repeats.at += 0.1
    assert repeats.log(topic="t", partition=1) == {"event": "retry", "topic": "t", "partition": 1, "suppressed": 4}
    assert repeats.log(topic="t", partition=1) == {"event": "retry", "topic": "t", "partition": 1}
    assert repeats.log(topic="t", partition=1) is None
    assert repeats.told == []


@pytest.mark.parametrize("key", ["flow", "cluster", "broker", "topic", "partition"])
def test_what_a_line_is_about_tells_repeats_apart(key: str) -> None:
    values: list[Any] = [0, 1, "x", ("a", 1), None]
    repeats = Repeats()
    assert all(repeats.log("retry", **{key: value}) for value in values for _ in range(2))
    assert not any(repeats.log("retry", **{key: value}) for value in values)
    assert repeats.log("another", **{key: values[0]})


def test_other_keys_do_not() -> None:
    repeats = Repeats()
    assert [repeats.log(topic="t", attempt=n) is None for n in range(3)] == [False, False, True]


def test_what_never_comes_again_is_told_by_another_line() -> None:
    repeats = Repeats()
    for _ in range(5):
        repeats.log(topic="t", partition=0)
    repeats.at += 30
    repeats.log("other")
    assert repeats.told == []
    repeats.at += 30
    repeats.log("other")
    assert repeats.told == [{"of_event": "retry", "topic": "t", "partition": 0, "suppressed": 3}]
    repeats.at += 600
    repeats.log("other")
    assert len(repeats.told) == 1


def test_flush_tells_the_rest_once() -> None:
    repeats = Repeats()
    for _ in range(3):
        repeats.log(topic="t")
    repeats.log("other")
    repeats.limit.flush()
    repeats.limit.flush()
    assert repeats.told == [{"of_event": "retry", "topic": "t", "suppressed": 1}]


@pytest.mark.parametrize("event", ["progress", "skipped", "halted", "resumed"])
def test_what_is_never_held_back(event: str) -> None:
    """Also what tells of offsets that are not copied: retention that overtakes a mirror again and again takes others
    each time."""
    repeats = Repeats()
    assert all(repeats.log(event, topic="t", partition=0, detail=str(at)) for at in range(100))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "IDENTITIES_MAX", 3)
    repeats = Repeats()
    for _ in range(3):
        repeats.log(topic="first")
    for n in range(5):
        assert repeats.log(topic=str(n))
    assert repeats.told == [{"of_event": "retry", "topic": "first", "suppressed": 1}]
    assert len(repeats.limit._windows) == 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100)), max_size=60))
def test_every_line_is_written_or_counted(calls: list[tuple[str, float]]) -> None:
    """Lines written + lines told as held back = lines logged, for any order and any times."""
    repeats = Repeats()
    written = counted = 0
    for topic, pause_s in calls:
        repeats.at += pause_s
        line = repeats.log(topic=topic)
        written += line is not None
        counted += 0 if line is None else line.get("suppressed", 0)
    repeats.limit.flush()
    assert written + counted + sum(held["suppressed"] for held in repeats.told) == len(calls)


def test_the_configured_log_holds_repeats_back(out: Out) -> None:
    logs.flush()  # before any configuration: nothing to tell
    logs.configure(stream=out)
    for _ in range(logs.REPEATS_MAX + 3):
        logs.get_logger(topic="t").warning("retry", partition=0)
    for _ in range(logs.REPEATS_MAX + 3):
        logging.getLogger("library").warning("again")
    logs.flush()
    lines = out.lines()
    assert len(lines) == 2 * logs.REPEATS_MAX + 2
    held = [{key: line[key] for key in line if key != "timestamp"} for line in lines[-2:]]
    common = {"event": "repeats_suppressed", "level": "warning", "suppressed": 3}
    assert held == [common | {"of_event": "retry", "topic": "t", "partition": 0}, common | {"of_event": "again"}]


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_stdout_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who logs notices, and it is counted; a plain stream would raise where the line is logged."""
    full = FULL.open("w")
    try:
        monkeypatch.setattr(sys, "stdout", full)
        logs.configure()
        before = logs.lines_lost()
        logs.get_logger().info("one")
        logs.flush()
        assert logs.lines_lost() == before + 1
        logs.configure(stream=full)
        with pytest.raises(OSError, match="No space left"):
            logs.get_logger().info("two")
    finally:
        with suppress(OSError):
            full.close()
    monkeypatch.setattr(sys, "stdout", None)
    logs.configure()
    logs.get_logger().info("three")
    logs.flush()
    assert logs.lines_lost() == 1


def test_what_was_lost_is_one_line_more() -> None:
    """As JSON and for people."""
    line = json.loads(logs._lost_as_json(3, "why"))
    assert (line["event"], line["level"], line["count"]) == ("log_lines_lost", "warning", 3)
    assert line["detail"] == "3 log lines were lost: why"
    assert logs._lost_as_text(3, "why").endswith("3 log lines were lost: why\n")


def test_flush_before_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_limit", None)
    logs.flush()
