"""What the frozen bounds alone tell, and what two real clusters answer to a wrong question."""

import asyncio
import threading

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.job import _prepare
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Bounds, Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare import patience
from mirror.audit.prepare.bounds import outside
from mirror.audit.prepare.estimate import bytes_per_offset
from mirror.records.header import Codec
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import copy, create, endpoint, fill
from tests.legacy.samples import messages_of, records_from, wrapper_of
from tests.records.builders import kafka_batch, raw_batch


def told(source: Span, destination: Span) -> list[tuple[Kind, Span | None, Span | None]]:
    """Findings of one partition."""
    bounds = Bounds(topic="t", partition=2, source=source, destination=destination)
    found = outside(bounds, "east", "west")
    assert all((finding.topic, finding.partition, finding.batches) == ("t", 2, 0) for finding in found)
    return [(finding.kind, finding.source, finding.destination) for finding in found]


@pytest.mark.parametrize(
    ("source", "destination", "found"),
    [
        (Span(0, 10), Span(0, 10), []),
        (Span(0, 0), Span(0, 0), []),
        (Span(0, 10), Span(0, 7), [(Kind.MISSING, Span(7, 10), None)]),
        (Span(0, 10), Span(0, 0), [(Kind.MISSING, Span(0, 10), None)]),
        (Span(0, 10), Span(0, 12), [(Kind.EXTRA, None, Span(10, 12))]),
        # Retention, or never copied: the source has it and the destination has not.
        (Span(0, 10), Span(4, 10), [(Kind.MISSING, Span(0, 4), None)]),
        (Span(0, 10), Span(4, 7), [(Kind.MISSING, Span(0, 4), None), (Kind.MISSING, Span(7, 10), None)]),
        (Span(0, 10), Span(4, 12), [(Kind.MISSING, Span(0, 4), None), (Kind.EXTRA, None, Span(10, 12))]),
        # Retention at the source: nothing to compare the destination's older offsets with.
        (Span(4, 10), Span(0, 10), []),
        (Span(10, 10), Span(0, 10), []),
        # Nothing in common.
        (Span(20, 30), Span(0, 10), [(Kind.MISSING, Span(20, 30), None)]),
        (Span(0, 10), Span(20, 30), [(Kind.MISSING, Span(0, 10), None), (Kind.EXTRA, None, Span(20, 30))]),
    ],
)
def test_offsets_outside_the_other_log(
    source: Span, destination: Span, found: list[tuple[Kind, Span | None, Span | None]]
) -> None:
    assert told(source, destination) == found


@pytest.mark.parametrize(
    ("source", "destination", "audited"),
    [
        (Span(0, 10), Span(0, 10), Span(0, 10)),
        (Span(3, 10), Span(0, 7), Span(3, 7)),
        (Span(20, 30), Span(0, 10), Span(20, 20)),
    ],
)
def test_what_both_have_is_audited(source: Span, destination: Span, audited: Span) -> None:
    assert Bounds(topic="t", partition=0, source=source, destination=destination).audited == audited


def test_sizes_are_estimated_from_headers() -> None:
    batch = raw_batch(bytes(139), last_offset_delta=9)
    assert bytes_per_offset(memoryview(batch * 3)) == 20
    assert bytes_per_offset(memoryview(batch[:61])) == 20, "a batch that is cut off says its size"
    assert bytes_per_offset(memoryview(batch[:60])) is None
    for size in range(8):
        several = b"".join(raw_batch(bytes(size + at), last_offset_delta=9) for at in range(40))
        assert bytes_per_offset(memoryview(several)) == len(several) / 400, "wherever batches begin"
    assert bytes_per_offset(memoryview(b"\xff" * 200)) is None


def test_sizes_of_old_formats_are_estimated_from_their_offsets() -> None:
    """How many offsets the first entry takes, its header does not say."""
    alone = messages_of(1, records_from(0, 4))
    assert bytes_per_offset(memoryview(alone)) == pytest.approx(len(alone) / 4, rel=0.4)
    wrapped = [wrapper_of(0, Codec.LZ4, records_from(at, 4, magic=0)) for at in (4, 8, 12)]
    assert bytes_per_offset(memoryview(b"".join(wrapped))) == sum(map(len, wrapped[1:])) / 8
    assert bytes_per_offset(memoryview(wrapped[0])) is None
    assert bytes_per_offset(memoryview(wrapped[0] + wrapped[1][:20])) == len(wrapped[1]) / 4
    assert bytes_per_offset(memoryview(alone + kafka_batch(base_offset=4))) is not None


def request(source: SandboxCluster, destination: SandboxCluster, *topics: str, **more: object) -> AuditRequest:
    """Without waiting for a mirror that does not run."""
    return AuditRequest(
        flow="a->b", source=endpoint(source, "a"), destination=endpoint(destination, "b"), topics=topics,
        **{"catch_up_s": 0, **more},  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.broker
class TestFreezing:
    """Bounds of real topics."""

    def test_topics_and_partitions_that_one_side_lacks(
        self, source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
    ) -> None:
        here, there, absent = (f"{topic_name}-{name}" for name in ("here", "there", "absent"))
        create(source_cluster, here, partitions=3)
        create(destination_cluster, here, partitions=2)
        create(source_cluster, there)
        create(destination_cluster, there, partitions=3)
        fill(destination_cluster, there, partition=2, batches=1)
        create(source_cluster, absent)
        create(destination_cluster, f"{topic_name}-alone")
        wanted = request(source_cluster, destination_cluster, selects=lambda name: name.startswith(topic_name))
        frozen = asyncio.run(_prepare(wanted)).frozen
        assert frozen.alone == (f"{topic_name}-alone",)
        assert [(found.kind, found.topic, found.partition, found.destination) for found in frozen.findings] == [
            (Kind.MISSING, absent, None, None),
            (Kind.MISSING, here, 2, None),
            (Kind.EXTRA, there, 2, Span(0, 3)),
        ]
        assert [known.key for known in frozen.bounds] == [(here, 0), (here, 1), (there, 0)]
        assert frozen.source_cluster_id == source_cluster.cluster_id
        assert set(frozen.destination_topic_ids) == {here, there}

    def test_topics_that_are_named_and_not_there(
        self, source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
    ) -> None:
        """At either side: it is a finding, and the others are audited. Alone, it ends the audit."""
        both, here, there = (f"{topic_name}-{name}" for name in ("both", "here", "there"))
        for cluster, names in ((source_cluster, (both, here)), (destination_cluster, (both, there))):
            for name in names:
                create(cluster, name)
        asyncio.run(_prepare(request(source_cluster, destination_cluster, both)))
        for name, where in ((here, "b"), (there, "a"), (f"{topic_name}-nowhere", "a")):
            frozen = asyncio.run(_prepare(request(source_cluster, destination_cluster, both, name))).frozen
            (finding,) = frozen.findings
            assert (finding.kind, finding.topic, finding.partition) == (Kind.ABSENT, name, None)
            assert finding.detail == f"topic {name} is not at cluster {where}"
            assert [known.topic for known in frozen.bounds] == [both]
            with pytest.raises(AuditError, match=f"topic {name} is not at cluster {where}"):
                asyncio.run(_prepare(request(source_cluster, destination_cluster, name)))
        only = request(source_cluster, destination_cluster, here, selects=lambda name: name == both)
        assert [one.topic for one in asyncio.run(_prepare(only)).frozen.findings] == [here]

    def test_topics_are_selected_by_name_and_never_internal(
        self, source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
    ) -> None:
        for cluster in (source_cluster, destination_cluster):
            for name in ("x", "y"):
                create(cluster, f"{topic_name}-{name}")
        chosen = request(source_cluster, destination_cluster, selects=lambda name: name.startswith(topic_name))
        assert {known.topic for known in asyncio.run(_prepare(chosen)).frozen.bounds} == {
            f"{topic_name}-x", f"{topic_name}-y",
        }  # fmt: skip
        with pytest.raises(AuditError, match="selects no topic"):
            asyncio.run(_prepare(request(source_cluster, destination_cluster, selects=lambda name: name[0] == "_")))

    def test_a_broker_that_restarts(
        self,
        source_cluster: SandboxCluster,
        destination_cluster: SandboxCluster,
        topic_name: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """1. With the destination down, the audit waits, and begins when it is up. 2. Mutation: at once, it fails."""
        for cluster in (source_cluster, destination_cluster):
            create(cluster, topic_name)
        wanted = request(source_cluster, destination_cluster, topic_name)
        broker = destination_cluster.brokers[0]
        broker.stop()
        up = threading.Thread(target=broker.start)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(patience, "TRIES", 1)
                with pytest.raises(AuditError, match="cluster b"):
                    asyncio.run(_prepare(wanted))
        finally:
            up.start()
        monkeypatch.setattr(patience, "TRIES", 60)  # this broker may take longer than a broker that has a machine
        assert [known.key for known in asyncio.run(_prepare(wanted)).frozen.bounds] == [(topic_name, 0)]
        up.join()

    def test_bounds_and_estimates(
        self, source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
    ) -> None:
        for cluster in (source_cluster, destination_cluster):
            create(cluster, topic_name)
        fill(source_cluster, topic_name, batches=6)
        copy(source_cluster, destination_cluster, topic_name, change=lambda raw: raw[:4])
        prepared = asyncio.run(_prepare(request(source_cluster, destination_cluster, topic_name)))
        (known,) = prepared.frozen.bounds
        assert (known.source.start, known.destination.start) == (0, 0)
        assert known.destination.end < known.source.end
        (estimate,) = prepared.estimates
        assert estimate.span == known.audited == Span(0, known.destination.end)
        assert estimate.size > 61 * 4
