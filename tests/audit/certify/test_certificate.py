"""Certificates: made by an audit, signed, verified offline; and no change of one passes."""

import base64
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from mirror.audit import export
from mirror.audit.certify import verifying
from mirror.audit.certify.certificate import canonical, signed
from mirror.audit.certify.contents import root
from mirror.audit.certify.keys import SigningKey, fingerprint, read_public
from mirror.audit.certify.verifying import Verified, verified
from mirror.audit.errors import AuditError
from mirror.audit.folder import CERTIFICATE, FILES, PAGE, SUMMARY, prepare
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Adopted, Side, Span, TopicPartition
from mirror.audit.model.result import AuditResult, RangeContent, Verdict
from mirror.cli import main
from tests.audit.test_report import cleaned, finding, result

Made = dict[str, Any]


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """The private and the public one."""
    private, public = tmp_path / "key.pem", tmp_path / "key.pub.pem"
    key = Ed25519PrivateKey.generate()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def written(tmp_path: Path, shown: AuditResult | None = None, key: Path | None = None) -> Path:
    """The folder of an audit."""
    folder = tmp_path / "audit"
    prepare(folder)
    export.write(shown or result(), folder, key=SigningKey.read(key) if key else None)
    return folder


def changed(folder: Path, change: Any) -> Path:
    """The certificate after a change."""
    made = json.loads((folder / CERTIFICATE).read_text())
    change(made)
    (folder / CERTIFICATE).write_text(json.dumps(made))
    return folder


def test_what_an_audit_writes_is_valid(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    folder = written(tmp_path, key=keys[0])
    found = verified(folder, read_public(keys[1]))
    assert (found.verdict, found.problems) == (Verdict.IDENTICAL, [])
    told = "\n".join(found.told)
    assert "identical: flow a->b, issued at 20" in told
    assert "a (cluster A) and b (cluster B)" in told
    assert "2 partitions, 100 records of a; both sides have the same root (xxh3_128) in 2 of them" in told
    assert f"files: {len(FILES) - 2} of {len(FILES) - 2} as the audit wrote them" in told
    made = json.loads((folder / CERTIFICATE).read_text())
    assert made["files"].keys() == set(FILES) - {CERTIFICATE, SUMMARY}
    assert made["signature"]["key"] == fingerprint(read_public(keys[1]))


def test_openssl_makes_the_keys_and_verifies_the_signature(tmp_path: Path, openssl: str) -> None:
    """By the commands that the remedies name, and of the bytes that the documents name."""
    private, public = tmp_path / "key.pem", tmp_path / "key.pub.pem"
    subprocess.run([openssl, "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run([openssl, "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    folder = written(tmp_path, key=private)
    assert verified(folder, read_public(public)).problems == []
    made = json.loads((folder / CERTIFICATE).read_text())
    (tmp_path / "message").write_bytes(canonical(made))
    (tmp_path / "signature").write_bytes(base64.b64decode(made["signature"]["value"]))
    subprocess.run(
        [
            openssl, "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", tmp_path / "message",
            "-sigfile", tmp_path / "signature",
        ],
        check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture
def openssl() -> str:
    """The program."""
    return shutil.which("openssl") or pytest.skip("no openssl on PATH")


def paths(made: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of all values in it."""
    if isinstance(made, dict):
        return [path for key, value in made.items() for path in paths(value, (*at, key))]
    if isinstance(made, list):
        return [path for key, value in enumerate(made) for path in paths(value, (*at, key))]
    return [at]


def test_no_change_of_a_signed_certificate_passes(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    """Each value of it, by itself, the signature's own included."""
    folder = written(tmp_path, key=keys[0])
    key = read_public(keys[1])
    whole = json.loads((folder / CERTIFICATE).read_text())
    every = list(paths(whole))
    assert len(every) > 40
    for path in every:

        def change(made: Made, path: tuple[Any, ...] = path) -> None:
            at = made
            for step in path[:-1]:
                at = at[step]
            value = at[path[-1]]
            at[path[-1]] = (
                (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}0"
            )

        (folder / CERTIFICATE).write_text(json.dumps(whole))
        try:
            found = verified(changed(folder, change), key)
        except AuditError:
            continue
        assert found.problems, path


def with_ranges(made: Made, *ranges: list[Any]) -> None:
    """Gives both sides of a partition these ranges, and the root of them."""
    for side in ("source", "destination"):
        told = root("xxh3_128", [RangeContent(*each) for each in ranges])
        made["partitions"][0][side].update(ranges=list(ranges), root=told)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda made: made["partitions"][0]["source"]["ranges"][0].__setitem__(3, 16 * "cd"), "root is not that of"),
        (lambda made: made["partitions"][0]["destination"].update(ranges=[]), "ranges leave a hole at 0"),
        (lambda made: made["partitions"][0]["destination"].update(ranges=[]), "were read in different ranges"),
        (lambda made: with_ranges(made, [0, 50, 50, 16 * "ab"], [0, 50, 50, 16 * "ab"]), "begins at 0 and ends at 50"),
        (lambda made: with_ranges(made, [0, 90, 9, 16 * "ab"], [90, 50, 9, 16 * "ab"]), "begins at 90 and ends at 50"),
        (lambda made: with_ranges(made, [0, 50, 50, 16 * "ab"], [50, 50, 1, 16 * "ab"]), "begins at 50 and ends at 50"),
        (lambda made: made["partitions"][0]["source"].update(records=7), "have different numbers of records"),
        (lambda made: made["partitions"][0]["cleaned"].update(records=7), "have different numbers of records"),
        (lambda made: made["partitions"][0]["destination"].update(records=99), "have different numbers of records"),
        (lambda made: made["partitions"].append(made["partitions"][0]), "or one is there twice"),
        (lambda made: made["partitions"].reverse(), "not in order"),
        (lambda made: made.update(verdict="accepted", findings={"missing": 5}), "5 missing findings: that is diff"),
        (lambda made: made.update(verdict="accepted", findings={"oversize": 1}), "that is oversize"),
        (lambda made: made.update(verdict="identical", findings={"oversize": 1}, accepted=["oversize"]), "is accepted"),
        (lambda made: made.update(verdict="unverifiable", findings={"absent": 1}), "that is incomplete"),
        (
            lambda made: (
                made.update(verdict="unverifiable", findings={"unverifiable": 1}),
                made["partitions"][1]["source"].update(complete=False),
            ),
            "it says unverifiable, and [red]t partition 1 was not read in full",
        ),
        (lambda made: made.update(files={}), "it must have the digests of coverage.json, "),
        (lambda made: made["files"].update({"/dev/zero": 64 * "0"}), "it must have the digests of coverage.json, "),
        (lambda made: made["partitions"][0].update(end=60), "ranges leave a hole at 50"),
        (lambda made: made["findings"].update(missing=1), "it says identical, and has 1 missing"),
        (lambda made: made.update(verdict="different"), "it says different, and has no findings: that is identical"),
        (lambda made: made["partitions"][0]["source"].update(complete=False), "was not read in full"),
        (lambda made: made["files"].update({"findings.json": 64 * "0"}), "findings.json is not there, or is not"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_named(tmp_path: Path, change: Any, problem: str) -> None:
    """Without any signature: whoever changes one number by hand is seen."""
    found = verified(changed(written(tmp_path), change), None)
    assert any(problem in each for each in found.problems), found.problems


@pytest.mark.parametrize("name", [name for name in FILES if name not in {CERTIFICATE, SUMMARY}])
@pytest.mark.parametrize("gone", [True, False])
def test_the_files_beside_it_are_those_of_the_audit(tmp_path: Path, name: str, gone: bool) -> None:
    folder = written(tmp_path)
    if gone:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    (problem,) = verified(folder, None).problems
    assert problem.startswith(name)


def test_signatures_that_are_not_there_or_of_another_key(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    key = read_public(keys[1])
    unsigned = verified(written(tmp_path), key)
    assert unsigned.problems == ["it is not signed"]
    other = tmp_path / "other.pem"
    other.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert verified(written(tmp_path, key=other), key).problems == [
        f"it has no signature of this key ({fingerprint(key)})"
    ]
    folder = written(tmp_path, key=keys[0])
    assert "not checked; name the public key with --key" in told(verified(folder, None))
    for wrong in ("", "x", None, {}, {"algorithm": "none", "value": ""}, {"algorithm": "ed25519"}):
        (problem,) = verified(changed(folder, lambda made, wrong=wrong: made.update(signature=wrong)), key).problems
        assert "signed" in problem or "no signature" in problem
    assert "signature: none" in told(verified(written(tmp_path), None))


def test_a_signature_can_be_written_in_one_way_only(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    """Base64 has bits that say nothing; and nothing can be added to a signature."""
    folder = written(tmp_path, key=keys[0])
    whole = json.loads((folder / CERTIFICATE).read_text())
    value = whole["signature"]["value"]
    assert value.endswith("==")
    other = value[:-3] + {"A": "B", "Q": "R", "g": "h", "w": "x"}[value[-3]] + "=="
    assert base64.b64decode(other, validate=True) == base64.b64decode(value)
    for change in ({"value": other}, {"note": ""}, {"key": 64 * "0"}):
        (folder / CERTIFICATE).write_text(json.dumps(whole))
        found = verified(changed(folder, lambda made, change=change: made["signature"].update(change)), None)
        assert found.problems == []
        (problem,) = verified(folder, read_public(keys[1])).problems
        assert "no signature of this key" in problem, change


def told(found: Verified) -> str:
    return "\n".join(found.told)


def test_keys_that_cannot_be_used(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    key = Ed25519PrivateKey.generate()
    files = {
        "absent": None,
        "empty": b"",
        "public": keys[1].read_bytes(),
        "encrypted": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")),
        "x25519": X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(AuditError, match=name):
            SigningKey.read(tmp_path / name)
        if name != "public":
            with pytest.raises(AuditError, match=name):
                read_public(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON"),
        ("[]", "no certificate"),
        ('{"format": "other"}', "no certificate"),
        ('{"format": "mirror-audit-certificate"}', "format version None"),
        ('{"format": "mirror-audit-certificate", "format_version": 1}', "no whole certificate"),
        ('{"format": "mirror-audit-certificate", "format_version": 2}', "no whole certificate"),
        ('{"format": "mirror-audit-certificate", "format_version": 3}', "format version 3; this mirror knows 1, 2"),
        ('{"format": "mirror-audit-certificate", "format_version": true}', "no whole certificate"),
    ],
)
def test_files_that_are_no_certificate(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / CERTIFICATE).write_text(content)
    with pytest.raises(AuditError, match=problem):
        verified(tmp_path, None)


@pytest.mark.parametrize(
    "made", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "folder", "device"]
)
def test_what_is_no_file_is_not_read(tmp_path: Path, made: Any) -> None:
    """A pipe has no end, and nobody may ever write to it."""
    for name in ("findings.json", CERTIFICATE):
        folder = written(tmp_path)
        (folder / name).unlink()
        made(folder / name)
        if name == CERTIFICATE:
            with pytest.raises(AuditError, match=r"no regular file|Is a directory"):
                verified(folder, None)
        else:
            (problem,) = verified(folder, None).problems
            assert problem.startswith("findings.json is not there")
        (folder / name).rmdir() if (folder / name).is_dir() else (folder / name).unlink()


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    folder = written(tmp_path)
    os.truncate(folder / CERTIFICATE, verifying.MOST_BYTES + 1)
    with pytest.raises(AuditError, match="larger than"):
        verified(folder, None)


def test_a_name_that_is_too_long_is_said(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="too long"):
        verified(tmp_path / ("a" * 5_000), None)


def test_the_command_ends_as_the_audit_did(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    """So that a script that asks for proof gets none from a valid certificate of a difference."""

    def run(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["audit", "verify", *map(str, arguments)])
        return done.exit_code, done.output

    folder = written(tmp_path, key=keys[0])
    assert run(folder)[0] == run(folder / CERTIFICATE, "--key", keys[1])[0] == 0
    assert run(folder)[1].endswith("\nvalid\n")
    for kind, code in ((Kind.MISSING, 2), (Kind.UNVERIFIABLE, 3), (Kind.ABSENT, 1)):
        assert run(written(tmp_path, result(finding(kind, 3))))[0] == code
    code, output = run(written(tmp_path), "--key", keys[1])
    assert (code, output.splitlines()[-1]) == (1, "not valid: it is not signed")
    code, output = run(tmp_path / "nowhere")
    assert code == 1
    assert "cannot read" in output


def test_signing_needs_a_folder(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    (tmp_path / "mirror.yaml").write_text("")
    done = CliRunner().invoke(main, ["audit", "-c", str(tmp_path / "mirror.yaml"), "--sign-with", str(keys[0])])
    assert done.exit_code == 64
    assert "--out" in done.output


def test_roots_tell_all_ranges_apart() -> None:
    """By their offsets, their order and their digests; a root is the same on each machine."""
    one, two = RangeContent(0, 10, 5, "ab" * 16), RangeContent(10, 20, 5, "cd" * 16)
    roots = {
        root("xxh3_128", each)
        for each in (
            [], [one], [two], [one, two], [two, one], [one._replace(end=11)], [one._replace(width=6)],
            [one._replace(start=1)], [one._replace(digest="ab" * 15 + "aa")],
        )
    }  # fmt: skip
    assert len(roots) == 9
    assert root("sha256", []) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    with pytest.raises(ValueError, match="md5"):
        root("md5", [])


def test_a_partition_of_which_nothing_was_read(tmp_path: Path) -> None:
    """It is empty, and its certificate is valid."""
    shown = result()
    empty = [replace(row, audited=Span(50, 50), contents=()) for row in shown.coverage]
    assert verified(written(tmp_path, replace(shown, coverage=tuple(empty))), None).problems == []


def test_what_a_log_cleaner_has_removed_is_counted(tmp_path: Path) -> None:
    """
    1. The destination's cleaner has removed seven records. The certificate has that number, and is valid.
    2. One that says six, or nothing, is not. Mutation: the numbers of both sides must be the same.
    """
    folder = written(tmp_path, cleaned(7))
    assert verified(folder, None).problems == []
    for count in ({"batches": 2, "records": 6}, None):

        def change(made: Made, count: Any = count) -> None:
            made["partitions"][1].update(cleaned=count) if count else made["partitions"][1].pop("cleaned")

        (problem,) = verified(changed(folder, change), None).problems
        assert "[red]t partition 1 have different numbers of records" in problem


def test_a_batch_over_the_border_of_what_was_audited_counts_whole(tmp_path: Path) -> None:
    """A flow that joins small batches ends a larger one behind the source's frozen end: its number of records says
    nothing. Mutation: it is compared all the same."""
    shown = result()
    rows = [replace(row, records=53, cut=True) if row is shown.coverage[-1] else row for row in shown.coverage]
    folder = written(tmp_path, replace(shown, coverage=tuple(rows)))
    assert verified(folder, None).problems == []
    (problem,) = verified(changed(folder, lambda made: made["partitions"][1].update(cut=False)), None).problems
    assert "have different numbers of records" in problem


def test_a_page_is_part_of_it(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert (folder / PAGE).read_text().startswith("<!doctype html>")


def test_topics_with_another_name_at_the_destination_have_both(tmp_path: Path) -> None:
    shown = replace(result(), renamed={"[red]t": "east.t"}, offsets="mapped")
    folder = written(tmp_path, shown)
    made = json.loads((folder / CERTIFICATE).read_text())
    assert {(each["topic"], each["destination_topic"]) for each in made["partitions"]} == {("[red]t", "east.t")}
    found = verified(folder, None)
    assert found.problems == []
    assert "other names at b: [red]t is east.t" in found.told


IDS = "0123456789abcdef" * 2, "f" * 32


def adopted_copy() -> AuditResult:
    """Of a flow that leads back into one of its partitions, whose topic has an id at the destination only."""
    before = {TopicPartition("[red]t", 1): Adopted(30, 4)}
    topic_ids = {Side.SOURCE: {"[red]t": IDS[0]}, Side.DESTINATION: {"other": IDS[0], "[red]t": IDS[1]}}
    return replace(result(), fill="transaction", topic_ids=topic_ids, adopted=before)


def test_what_was_compared_is_said_by_id_and_by_what_filled_it(tmp_path: Path) -> None:
    """Topics, as Kafka's tools show their ids, whose markers fill holes, and what was there before the flow."""
    folder = written(tmp_path, adopted_copy())
    made = json.loads((folder / CERTIFICATE).read_text())
    assert (made["format_version"], made["fill"]) == (2, "transaction")
    assert [(one["topic_id"], one["destination_topic_id"], one["adopted"]) for one in made["partitions"]] == [
        ("ASNFZ4mrze8BI0VniavN7w", "_____________________w", None),
        ("ASNFZ4mrze8BI0VniavN7w", "_____________________w", {"end": 30, "leader_epoch": 4}),
    ]
    found = verified(folder, None)
    assert found.problems == []
    assert "adopted: b had the beginning of 1 partition before the flow" in found.told
    plain = written(tmp_path)
    assert [one["topic_id"] for one in json.loads((plain / CERTIFICATE).read_text())["partitions"]] == ["", ""]
    assert "adopted" not in told(verified(plain, None))


def test_an_older_certificate_is_still_verified(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    """One of version 1 says nothing of these. In one of version 2, all of them have to be."""

    def older(made: Made) -> None:
        made.update(format_version=1)
        del made["fill"]
        for one in made["partitions"]:
            del one["topic_id"], one["destination_topic_id"], one["adopted"]

    folder = changed(written(tmp_path), older)
    made = json.loads((folder / CERTIFICATE).read_text())
    (folder / CERTIFICATE).write_text(json.dumps(signed(made, SigningKey.read(keys[0]))))
    found = verified(folder, read_public(keys[1]))
    assert (found.verdict, found.problems) == (Verdict.IDENTICAL, [])
    for change in (
        lambda made: made.pop("fill"),
        lambda made: made["partitions"][1].pop("topic_id"),
        lambda made: made["partitions"][0].pop("destination_topic_id"),
        lambda made: made["partitions"][1].pop("adopted"),
    ):
        (problem,) = verified(changed(written(tmp_path), change), None).problems
        assert problem == "it does not say all that format version 2 does"
