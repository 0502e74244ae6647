"""Verifies a certificate offline: its content is consistent, the files beside it are those that the audit wrote, and
the signature is the key's. No cluster, no Spark. Nothing in a certificate is used before it was checked."""

import hashlib
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.audit.certify.certificate import FORMAT, FORMAT_VERSION, canonical
from mirror.audit.certify.contents import root
from mirror.audit.certify.keys import fingerprint, is_signed
from mirror.audit.certify.shape import CertificateShape, Malformed, PartitionShape, parsed, shaped
from mirror.audit.errors import AuditError
from mirror.audit.folder import CERTIFICATE, CERTIFIED
from mirror.audit.model.places import Side
from mirror.audit.model.result import RangeContent, Verdict, verdict_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MOST_BYTES = 256 << 20
"""Maximum size of a certificate; a larger file is refused. This is enough for a million ranges."""
KNOWN = tuple(range(1, FORMAT_VERSION + 1))
"""Format versions that can be verified."""
MOST_NAMED = 10
"""Maximum number of topics with another name at the destination that are listed."""
_TAKE_AGAIN = "take it from the audit again"
_HAS_FILES = frozenset(CERTIFIED)


class Verified(NamedTuple):
    """The result of verifying a certificate. ``verdict``: the verdict that the certificate states. ``problems``: empty
    if the certificate is valid. ``told``: lines that summarize it."""

    verdict: Verdict
    problems: list[str]
    told: list[str]


def verified(path: Path, key: "Ed25519PublicKey | None") -> Verified:
    """Verifies a certificate.

    Args:
        path: the certificate's file, or the folder that holds it.
        key: the key that must have signed the certificate; None: no signature is needed, and none is checked.

    Raises:
        AuditError: the file cannot be read, or is no certificate of a format version that this mirror knows.
    """
    file = path / CERTIFICATE if os.path.isdir(path) else path
    made = _read(file)
    try:
        return _verified(made, shaped(made), file.parent, key)
    except Malformed as error:
        raise AuditError(f"{file} is no whole certificate: {error}", _TAKE_AGAIN) from error


def _verified(made: dict[str, Any], shape: CertificateShape, folder: Path, key: "Ed25519PublicKey | None") -> Verified:
    problems = [*_verdict_problems(shape), *_partition_problems(shape)]
    if not shape.is_whole:
        problems.append(f"it does not say all that format version {shape.format_version} does")
    if shape.files.keys() != _HAS_FILES:
        problems.append(f"it must have the digests of {', '.join(sorted(_HAS_FILES))}")
    names = sorted(_HAS_FILES & shape.files.keys())
    changed = [name for name in names if _digest_of(folder / name) != shape.files[name]]
    problems += [f"{name} is not there, or is not the one that the audit wrote" for name in changed]
    signature = made.get("signature")
    problems += _signature_problems(made, signature, key)
    same = sum(each.source.root == each.destination.root for each in shape.partitions)
    records = sum(each.source.records for each in shape.partitions)
    here, there = shape.source, shape.destination
    return Verified(
        shape.verdict,
        problems,
        [
            f"{shape.verdict.value}: flow {shape.flow}, issued at {shape.issued_at} by mirror {shape.versions.mirror}",
            f"{here.alias} (cluster {here.cluster_id}) and {there.alias} (cluster {there.cluster_id})",
            f"{len(shape.partitions):,} partitions, {records:,} records of {here.alias}; both sides have the same "
            f"root ({shape.digest}) in {same:,} of them",
            *_renamed_told(shape),
            *_adopted_told(shape),
            f"files: {len(names) - len(changed)} of {len(_HAS_FILES)} as the audit wrote them",
            _signature_told(signature, key),
        ],
    )  # fmt: skip


def _verdict_problems(shape: CertificateShape) -> Iterator[str]:
    due = verdict_of(shape.findings.keys(), shape.accepted)
    if due is not shape.verdict:
        found = ", ".join(f"{count:,} {kind.value}" for kind, count in shape.findings.items()) or "no"
        yield f"it says {shape.verdict.value}, and has {found} findings: that is {due.value}"


def _partition_problems(shape: CertificateShape) -> Iterator[str]:
    names = [(each.topic, each.partition) for each in shape.partitions]
    if names != sorted(set(names)):
        yield "its partitions are not in order, or one is there twice"
    for each in shape.partitions:
        where = f"{each.topic} partition {each.partition}"
        for side in Side:
            yield from _root_problems(each, side, shape.digest, where)
        if [one[:3] for one in each.source.ranges] != [one[:3] for one in each.destination.ranges]:
            yield f"{where}: the two sides were read in different ranges"
        # Each log that could not be read to its end has a finding, so the verdict cannot be a better one.
        whole = each.source.complete and each.destination.complete
        if not whole and shape.verdict not in (Verdict.DIFFERENT, Verdict.INCOMPLETE):
            yield f"it says {shape.verdict.value}, and {where} was not read in full"
        left = each.source.records - each.cleaned.records
        if shape.verdict is Verdict.IDENTICAL and not each.cut and left != each.destination.records:
            yield f"it says identical, and the sides of {where} have different numbers of records"


def _root_problems(each: PartitionShape, side: Side, digest: str, where: str) -> Iterator[str]:
    """Yields the inconsistencies between one side's ranges, its root and the partition's bounds."""
    ranges = [RangeContent(*found) for found in each.of(side).ranges]
    at = each.start
    for found in ranges:
        if found.start != at or found.end <= at:
            yield f"{where}: a range of the {side.value} begins at {found.start} and ends at {found.end}; {at} is due"
            break
        at = found.end
    if at != each.end:
        yield f"{where}: the {side.value}'s ranges leave a hole at {at}"
    if root(digest, ranges) != each.of(side).root:
        yield f"{where}: the {side.value}'s root is not that of its ranges"


def _signature_problems(made: dict[str, Any], signature: Any, key: "Ed25519PublicKey | None") -> list[str]:
    if key is None or is_signed(key, signature, canonical(made)):
        return []
    return [f"it has no signature of this key ({fingerprint(key)})" if signature else "it is not signed"]


def _renamed_told(shape: CertificateShape) -> list[str]:
    names = {each.topic: each.destination_topic for each in shape.partitions}
    renamed = [f"{topic} is {there}" for topic, there in names.items() if topic != there]
    if not renamed:
        return []
    more = f", and {len(renamed) - MOST_NAMED:,} more" if len(renamed) > MOST_NAMED else ""
    return [f"other names at {shape.destination.alias}: {', '.join(renamed[:MOST_NAMED])}{more}"]


def _adopted_told(shape: CertificateShape) -> list[str]:
    adopted = sum(each.adopted is not None for each in shape.partitions)
    many = f"{adopted:,} partition{'' if adopted == 1 else 's'}"
    return [f"adopted: {shape.destination.alias} had the beginning of {many} before the flow"] if adopted else []


def _signature_told(signature: Any, key: "Ed25519PublicKey | None") -> str:
    if key is not None:
        return f"signature: looked at with key {fingerprint(key)}"
    if signature:
        name = ascii(signature.get("key") if isinstance(signature, dict) else signature)[:100].strip("'")
        return f"signature: by key {name}, not checked; name the public key with --key"
    return "signature: none. Whoever can write to this folder could have made this file (mirror audit --sign-with)"


def _read(file: Path) -> dict[str, Any]:
    try:
        with _opened(file) as stream:
            text = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise AuditError(f"cannot read {file}: {error.strerror}", "name the file, or the folder of --out") from error
    if len(text) > MOST_BYTES:
        raise AuditError(f"{file} is larger than {MOST_BYTES:,} bytes: no certificate is", _TAKE_AGAIN)
    try:
        made = parsed(text)
    except Malformed as error:
        raise AuditError(f"{file} is not JSON as an audit writes it: {error}", _TAKE_AGAIN) from error
    if not isinstance(made, dict) or made.get("format") != FORMAT:
        raise AuditError(f"{file} is no certificate of an audit", f"name {CERTIFICATE} of a folder of --out")
    if made.get("format_version") not in KNOWN:
        raise AuditError(
            f"{file} has format version {ascii(made.get('format_version'))[:100]}; this mirror knows "
            f"{', '.join(map(str, KNOWN))}",
            "verify it with the version that made it, or a later one",
        )
    return made


def _opened(path: Path) -> BufferedReader:
    """Opens a regular file. Reading anything else, such as a pipe or a device, might never begin or never end.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(0, "it is no regular file")
        return os.fdopen(opened, "rb")
    except OSError:
        os.close(opened)
        raise


def _digest_of(path: Path) -> str | None:
    """Returns a file's SHA-256 in hex; None if there is no such file, or if it cannot be read."""
    try:
        with _opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
