"""What a certificate must look like before anything in it is believed: whoever verifies one may have got it from
anybody. Pure."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints, ValidationError

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side
from mirror.audit.model.result import Verdict

Text = Annotated[str, StringConstraints(pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$", max_length=1_000)]
"""Without control characters: it is shown on a terminal, where they could hide what is printed after it."""
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32}|[0-9a-f]{64})$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Width = Annotated[int, Field(ge=1, lt=1 << 63)]


class Malformed(Exception):
    """The text is no certificate. The message is safe for a terminal."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SideShape(_Strict):
    """One side of a partition. ``ranges``: start, end, width and digest of each."""

    batches: Count
    records: Count
    bytes: Count
    complete: bool
    root: Hex
    ranges: list[Annotated[tuple[Count, Count, Width, Hex], Strict(False)]]


class CountShape(_Strict):
    """What was written anew for one cause, or changed by log cleaners."""

    batches: Count
    records: Count


class AdoptedShape(_Strict):
    """What the destination had before the flow: everything before ``end``, of no later leader epoch (-1: not known)."""

    end: Count
    leader_epoch: Annotated[int, Field(ge=-1, lt=1 << 31)]


class PartitionShape(_Strict):
    """One partition. ``topic``: by its name at the source. ``topic_id`` and ``destination_topic_id``: empty where a
    cluster has no ids. ``cleaned``: what log cleaners have changed; the records are those that the destination no
    longer has. ``cut``: a batch reaches over the audited offsets, and counts whole."""

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
        """Returns one side."""
        return self.source if side is Side.SOURCE else self.destination


class ClusterShape(_Strict):
    """One cluster."""

    alias: Text
    cluster_id: Text


class VersionsShape(_Strict):
    """What made it."""

    mirror: Text
    pyspark: Text
    python: Text


class CertificateShape(_Strict):
    """All of it but the signature."""

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
        """True if it says all that its version does. Version 1 did not have these."""
        told = self.fill is not None and all(each.model_fields_set >= _SINCE_2 for each in self.partitions)
        return told or self.format_version < 2


_SINCE_2 = {"topic_id", "destination_topic_id", "adopted"}


def parsed(text: bytes) -> Any:
    """Returns what this JSON says, if it can be read in one way only: a name that stands twice in an object, and what
    is no number, mean something else to other readers.

    Raises:
        Malformed: it is not JSON, or not as strict.
    """
    try:
        return json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_no_number, parse_float=_no_number)
    except RecursionError as error:
        raise Malformed("it is nested too deeply") from error
    except ValueError as error:
        raise Malformed(ascii(str(error))[1:-1]) from error


def shaped(made: dict[str, Any]) -> CertificateShape:
    """Returns the certificate as values that can be relied on.

    Raises:
        Malformed: with the first place that is not as it must be.
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
