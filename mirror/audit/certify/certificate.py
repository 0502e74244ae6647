"""Builds the certificate of an audit. It is JSON, and complete in itself: each number in it can be checked without the
clusters, or by reading the same ranges of them again."""

import json
import platform
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from mirror import DISTRIBUTION
from mirror.audit.certify.contents import root
from mirror.audit.certify.keys import SigningKey
from mirror.audit.judge.changed.reencoded import counted
from mirror.audit.model.places import Adopted, Side, TopicPartition
from mirror.audit.model.result import AuditResult, Cleaned, Coverage
from mirror.offsetmap.fields import id_shown

FORMAT = "mirror-audit-certificate"
FORMAT_VERSION = 2
"""Since version 2, the certificate has the ids of topics, ``fill``, and what was adopted."""


def certificate(result: AuditResult, files: Mapping[str, str]) -> dict[str, Any]:
    """Returns the certificate of an audit, unsigned.

    Args:
        result: what the audit found.
        files: the SHA-256 in hex of each file beside the certificate, by its name.
    """
    sides: dict[tuple[str, int], dict[Side, Coverage]] = defaultdict(dict)
    for row in result.coverage:
        sides[row.topic, row.partition][row.side] = row
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "issued_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "mirror": version(DISTRIBUTION), "pyspark": version("pyspark"), "python": platform.python_version()
        },
        **outcome(result),
        "accepted": sorted(result.accepted),
        "skipped_offsets": sum(each.source.offsets for each in result.skipped),
        "undecided_offsets": sum(each.span.offsets for each in result.undecided),
        "partitions": [
            {
                "topic": topic,
                "partition": partition,
                "destination_topic": result.renamed.get(topic, topic),
                "topic_id": _topic_id(result, Side.SOURCE, topic),
                "destination_topic_id": _topic_id(result, Side.DESTINATION, result.renamed.get(topic, topic)),
                "adopted": _adopted(result.adopted.get(TopicPartition(topic, partition))),
                "start": found[Side.SOURCE].audited.start,
                "end": found[Side.SOURCE].audited.end,
                "cleaned": result.cleaned.get(TopicPartition(topic, partition), Cleaned(0, 0))._asdict(),
                "cut": any(found[side].cut for side in Side),
                **{side.value: _side(found[side], result.digest) for side in Side},
            }
            for (topic, partition), found in sorted(sides.items())
        ],
        "files": dict(sorted(files.items())),
    }  # fmt: skip


def outcome(result: AuditResult) -> dict[str, Any]:
    """Returns what an audit compared and its outcome: the part that the certificate and the summary have in common."""
    return {
        "flow": result.flow,
        "verdict": result.verdict.value,
        "identity": "payload",
        "offsets": result.offsets,
        "isolation_level": result.isolation_level,
        "fill": result.fill,
        "digest": result.digest,
        "source": {"alias": result.source_alias, "cluster_id": result.source_cluster_id},
        "destination": {"alias": result.destination_alias, "cluster_id": result.destination_cluster_id},
        "findings": dict(sorted(Counter(finding.kind.value for finding in result.findings).items())),
        "reencoded": {
            cause: {"batches": batches, "records": records}
            for cause, (batches, records) in sorted(counted(result.reencoded).items())
        },
        "append_times": result.stamped,
    }


def _topic_id(result: AuditResult, side: Side, topic: str) -> str:
    """Returns a topic's id as Kafka's own tools print it; an empty string if its cluster has no topic ids."""
    return id_shown(result.topic_ids.get(side, {}).get(topic))


def _adopted(before: Adopted | None) -> dict[str, int] | None:
    return None if before is None else {"end": before.end, "leader_epoch": before.leader_epoch}


def _side(row: Coverage, digest: str) -> dict[str, Any]:
    return {
        "batches": row.batches,
        "records": row.records,
        "bytes": row.bytes,
        "complete": row.complete,
        "root": root(digest, row.contents),
        "ranges": [[each.start, each.end, each.width, each.digest] for each in row.contents],
    }


def canonical(made: Mapping[str, Any]) -> bytes:
    """Returns the bytes that are signed: the certificate without its signature, as JSON with sorted keys, without
    spaces and escaped to ASCII."""
    unsigned = {name: value for name, value in made.items() if name != "signature"}
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def signed(made: Mapping[str, Any], key: SigningKey | None) -> dict[str, Any]:
    """Returns the certificate with its signature, or unchanged if ``key`` is None."""
    return dict(made) if key is None else {**made, "signature": key.sign(canonical(made))}
