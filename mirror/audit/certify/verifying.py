"""Verifies a certificate offline: what is in it fits together, the files beside it are those of the audit, and the
signature is the key's. No cluster, no Spark."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.audit.certify.certificate import FORMAT, FORMAT_VERSION, canonical
from mirror.audit.certify.contents import root
from mirror.audit.certify.keys import fingerprint, is_signed
from mirror.audit.errors import AuditError
from mirror.audit.folder import CERTIFICATE
from mirror.audit.model import RangeContent, Side, Verdict

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Verified(NamedTuple):
    """What became of it. ``problems``: none, if the certificate is valid. ``told``: lines on what it says."""

    verdict: Verdict
    problems: list[str]
    told: list[str]


def verified(path: Path, key: "Ed25519PublicKey | None") -> Verified:
    """Verifies a certificate.

    Args:
        path: the file, or the folder that has it.
        key: whose signature it must have; None: no signature is asked for, and none is checked.

    Raises:
        AuditError: it cannot be read, or is no certificate that this version knows.
    """
    file = path / CERTIFICATE if path.is_dir() else path
    made = _read(file)
    try:
        return _verified(made, file.parent, key)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AuditError(
            f"{file} is no whole certificate: {type(error).__name__}: {error}", "take it from the audit again"
        ) from error


def _verified(made: dict[str, Any], folder: Path, key: "Ed25519PublicKey | None") -> Verified:
    verdict = Verdict(made["verdict"])
    same = 0
    problems = []
    if (verdict is Verdict.IDENTICAL) == bool(made["findings"]):
        problems.append(f"it says {verdict.value}, and has {'' if made['findings'] else 'no '}findings")
    for each in made["partitions"]:
        where = f"{each['topic']} partition {each['partition']}"
        found = [_roots(each, side, made["digest"], where, problems) for side in Side]
        same += found[0] == found[1]
        if verdict is Verdict.IDENTICAL and not all(each[side.value]["complete"] for side in Side):
            problems.append(f"it says identical, and {where} was not read in full")
    changed = [name for name, digest in made["files"].items() if _digest_of(folder / name) != digest]
    problems += [f"{name} is not there, or is not the one that the audit wrote" for name in changed]
    signature = made.get("signature")
    problems += _signature_problems(made, signature, key)
    records = sum(each[Side.SOURCE.value]["records"] for each in made["partitions"])
    here, there = made["source"], made["destination"]
    return Verified(
        verdict,
        problems,
        [
            f"{verdict.value}: flow {made['flow']}, issued at {made['issued_at']} by "
            f"mirror {made['versions']['mirror']}",
            f"{here['alias']} (cluster {here['cluster_id']}) and {there['alias']} (cluster {there['cluster_id']})",
            f"{len(made['partitions']):,} partitions, {records:,} records of {here['alias']}; both sides have the same "
            f"root ({made['digest']}) in {same:,} of them",
            f"files: {len(made['files']) - len(changed)} of {len(made['files'])} as the audit wrote them",
            _signature_told(signature, key),
        ],
    )  # fmt: skip


def _roots(each: dict[str, Any], side: Side, digest: str, where: str, problems: list[str]) -> str:
    """Returns a side's root as computed from its ranges; what does not fit is added to the problems."""
    ranges = [RangeContent(*found) for found in each[side.value]["ranges"]]
    at = each["start"]
    for found in ranges:
        if found.start != at:
            break
        at = found.end
    if at != each["end"]:
        problems.append(f"{where}: the {side.value}'s ranges leave a hole at {at}")
    made = root(digest, ranges)
    if made != each[side.value]["root"]:
        problems.append(f"{where}: the {side.value}'s root is not that of its ranges")
    return made


def _signature_problems(made: dict[str, Any], signature: Any, key: "Ed25519PublicKey | None") -> list[str]:
    if key is None or is_signed(key, signature, canonical(made)):
        return []
    return [f"it has no signature of this key ({fingerprint(key)})" if signature else "it is not signed"]


def _signature_told(signature: Any, key: "Ed25519PublicKey | None") -> str:
    if key is not None:
        return f"signature: looked at with key {fingerprint(key)}"
    if signature:
        return f"signature: by key {signature['key']}, not checked; name the public key with --key"
    return "signature: none. Whoever can write to this folder could have made this file (mirror audit --sign-with)"


def _read(file: Path) -> dict[str, Any]:
    try:
        made = json.loads(file.read_bytes())
    except OSError as error:
        raise AuditError(f"cannot read {file}: {error.strerror}", "name the file, or the folder of --out") from error
    except ValueError as error:
        raise AuditError(f"{file} is not JSON: {error}", "take it from the audit again") from error
    if not isinstance(made, dict) or made.get("format") != FORMAT:
        raise AuditError(f"{file} is no certificate of an audit", f"name {CERTIFICATE} of a folder of --out")
    if made.get("format_version") != FORMAT_VERSION:
        raise AuditError(
            f"{file} has format version {made.get('format_version')}; this mirror knows {FORMAT_VERSION}",
            "verify it with the version that made it, or a later one",
        )
    return made


def _digest_of(path: Path) -> str:
    """Returns a file's SHA-256 in hex; empty, if it is not there."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
