"""The schema of a certificate. It is checked before anything in a certificate is used, because a certificate may come
from anybody. Pure."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints, ValidationError

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side
from mirror.audit.model.result import Verdict

Text = Annotated[str, StringConstraints(pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$", max_length=1_000)]
"""Text without control characters: it is shown on a terminal, where these could hide what is printed after it."""
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32}|[0-9a-f]{64})$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Width = Annotated[int, Field(ge=1, lt=1 << 63)]


class Malformed(Exception):
    """The text is not a valid certificate. The message is safe for a terminal."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SideShape(_Strict):
    """One side of a partition. ``ranges``: start, end, width and digest of each range."""

    batches: Count
    records: Count
    bytes: Count
    complete: bool
    root: Hex
    ranges: list[Annotated[tuple[Count, Count, Width, Hex], Strict(False)]]


class CountShape(_Strict):
    """Counts of what the mirror rewrote for one cause, or of what log cleaners have changed."""

    batches: Count
    records: Count


class AdoptedShape(_Strict):
    """The part of the destination's log that was there before the flow: the batches before offset ``end`` whose leader
    epoch is not later than ``leader_epoch`` (-1: not known)."""

    end: Count
    leader_epoch: Annotated[int, Field(ge=-1, lt=1 << 31)]


class PartitionShape(_Strict):
    """One partition. ``topic``: its name at the source. ``topic_id`` and ``destination_topic_id``: empty where a
    cluster has no topic ids. ``cleaned``: the changes of log cleaners; its ``records`` are those that the destination
    no longer has. ``cut``: a batch reaches beyond the audited offsets, and all of its records count."""

    topic: Text
    partition: Count
    destination_topic: Text
    topic_id: Text = ""
    destination_topic_id: Text = ""
    adopted: AdoptedShape | None = None
    start: Count
    end: Count
    cleaned: CountShape = CountShape(batches=0, records=0)
    cut: bool = False
    source: SideShape
    destination: SideShape

    def of(self, side: Side) -> SideShape:
        """Returns this side of the partition."""
        return self.source if side is Side.SOURCE else self.destination


class ClusterShape(_Strict):
    """One cluster."""

    alias: Text
    cluster_id: Text


class VersionsShape(_Strict):
    """The versions of the software that made the certificate."""

    mirror: Text
    pyspark: Text
    python: Text


class CertificateShape(_Strict):
    """A certificate without its signature."""

    format: Text
    format_version: Count
    issued_at: Text
    versions: VersionsShape
    flow: Text
    verdict: Annotated[Verdict, Strict(False)]
    identity: Literal["payload"]
    offsets: Text
    isolation_level: Text
    fill: Text | None = None
    digest: Literal["xxh3_128", "sha256"]
    source: ClusterShape
    destination: ClusterShape
    findings: dict[Annotated[Kind, Strict(False)], Width]
    accepted: list[Text]
    reencoded: dict[Text, CountShape]
    append_times: Count
    skipped_offsets: Count
    undecided_offsets: Count
    partitions: list[PartitionShape]
    files: dict[Text, Hex]

    @property
    def is_whole(self) -> bool:
        """True if the certificate has all fields of its format version. Version 1 had no ``fill`` and none of
        ``_SINCE_2``."""
        told = self.fill is not None and all(each.model_fields_set >= _SINCE_2 for each in self.partitions)
        return told or self.format_version < 2


_SINCE_2 = {"topic_id", "destination_topic_id", "adopted"}
"""The fields that partitions have since format version 2."""


def parsed(text: bytes) -> Any:
    """Returns the value of a JSON text that every reader understands in the same way. So an object may not have a name
    twice, and all numbers must be whole; NaN and Infinity are refused.

    Raises:
        Malformed: the text is not JSON, or not of this strict kind.
    """
    try:
        return json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_no_number, parse_float=_no_number)
    except RecursionError as error:
        raise Malformed("it is nested too deeply") from error
    except ValueError as error:
        raise Malformed(ascii(str(error))[1:-1]) from error


def shaped(made: dict[str, Any]) -> CertificateShape:
    """Returns the certificate with all values checked against the schema.

    Raises:
        Malformed: a value does not match the schema; the message names the first one.
    """
    try:
        return CertificateShape.model_validate({name: value for name, value in made.items() if name != "signature"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ascii(".".join(map(str, first["loc"])))[1:-1]
        raise Malformed(f"{where[:200]}: {first['msg']}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)[:100]} stands there twice")
    return made


def _no_number(text: str) -> Any:
    raise ValueError(f"{text[:100]} is no whole number")
