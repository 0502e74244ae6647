"""Certificates from anybody: nothing in them is believed, and none makes the command fail in a way of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirror.audit.certify.shape import Malformed, parsed, shaped
from mirror.audit.folder import CERTIFICATE
from mirror.cli import main
from tests.audit.certify.test_certificate import written


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"verdict": "different", "verdict": "identical"}', "verdict stands there twice"),
        ('{"a": {"\\u001b": 1, "\\u001b": 2}}', r"\\x1b stands there twice"),
        ('{"a": NaN}', "NaN is no whole number"),
        ('{"a": -Infinity}', "-Infinity is no whole number"),
        ('{"a": 1e999}', "1e999 is no whole number"),
        ('{"a": 1.0}', "1.0 is no whole number"),
        ('{"a": %s}' % (5_000 * "9"), "Exceeds the limit"),
        (100_000 * "[", "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("\ufeff{}", "BOM"),
        ("", "Expecting value"),
    ],
    ids=range(11),
)  # fmt: skip
def test_json_that_can_be_read_in_more_than_one_way(text: str, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        parsed(text.encode())


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings(encoding: str) -> None:
    with pytest.raises(Malformed):
        parsed('{"a": "\xe4"}'.encode(encoding))


def places(made: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of all that is in it, the objects and lists included."""
    inner = made.items() if isinstance(made, dict) else enumerate(made) if isinstance(made, list) else ()
    return [*([at] if at else []), *(place for key, value in inner for place in places(value, (*at, key)))]


HOSTILE: list[Any] = [None, True, -1, 1 << 63, 10**30, 1.5, "", "\x1b[8m\nvalid", "\ud800", [], {}, [[]], {"\x1b": 1}]


def test_whatever_stands_at_any_place(tmp_path: Path) -> None:
    """It is valid or it is not, in lines that a terminal can show; there is no other end."""
    folder = written(tmp_path)
    whole = (folder / CERTIFICATE).read_text()
    every = places(json.loads(whole))
    assert ("partitions", 0, "source", "ranges", 0, 3) in every
    for place in every:
        for value in HOSTILE:
            made = json.loads(whole)
            at = made
            for step in place[:-1]:
                at = at[step]
            at[place[-1]] = value
            (folder / CERTIFICATE).write_text(json.dumps(made))
            done = CliRunner().invoke(main, ["audit", "verify", str(folder)])
            assert isinstance(done.exception, SystemExit | None), (place, value, done.exception)
            assert done.output.isascii(), (place, value)
            assert done.output.replace("\n", "").isprintable(), (place, value)
            assert "\nvalid\n" not in done.output or done.exit_code == 0, (place, value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda made: made.pop("flow"), "flow: Field required"),
        (lambda made: made.update(more=1), "more: Extra inputs"),
        (lambda made: made.update({"\x1b": 1}), r"\x1b: Extra inputs"),
        (lambda made: made.update(flow="x\nvalid"), "flow: String should match"),
        (lambda made: made["findings"].update(other=1), "findings.other"),
        (lambda made: made["findings"].update(missing=0), "findings.missing: Input should be greater"),
        (lambda made: made["partitions"][0].update(start=-1), "partitions.0.start: Input should be greater"),
        (lambda made: made["partitions"][0]["source"].update(complete="no"), "valid boolean"),
        (lambda made: made["partitions"][0]["source"]["ranges"][0].append(1), "ranges.0"),
        (lambda made: made["partitions"][0]["source"]["ranges"][0].__setitem__(2, 0), "ranges.0.2"),
        (lambda made: made["partitions"][0]["source"]["ranges"][0].__setitem__(1, True), "ranges.0.1: Input"),
        (lambda made: made["partitions"][0]["source"]["ranges"][0].__setitem__(3, ""), "ranges.0.3: String"),
        (lambda made: made.update(digest="md5"), "digest: Input should be"),
    ],
    ids=range(13),
)
def test_values_that_no_audit_writes(tmp_path: Path, change: Any, problem: str) -> None:
    made = json.loads((written(tmp_path) / CERTIFICATE).read_text())
    assert shaped(made).flow == "a->b"
    change(made)
    with pytest.raises(Malformed) as error:
        shaped(made)
    assert problem in str(error.value)
