"""What to do about findings: once each, for all partitions that it concerns, with commands that can be typed."""

import pytest

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.request import ACCEPTABLE, AuditRequest, Endpoint
from mirror.audit.remedies import _REMEDIES, MOST_NAMED, remedies
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.service.commands import Commands
from tests.audit.test_report import finding

NO_DIFFERENCE = {Kind.CLEANED, Kind.REENCODED}


def request(**more: object) -> AuditRequest:
    source, destination = (Endpoint(alias=name, bootstrap=((f"{name}-1", 9092), (f"{name}-2", 9092))) for name in "ab")
    return AuditRequest(**{"flow": "a->b", "source": source, "destination": destination, **more})  # type: ignore[arg-type]


def of(kind: Kind, topic: str, partition: int | None) -> Finding:
    return finding(kind, 0, topic=topic, partition=partition)


def test_each_kind_has_one() -> None:
    told = [kind for remedy in _REMEDIES for kind in remedy.kinds]
    assert len(told) == len(set(told))
    assert set(told) == set(Kind) - NO_DIFFERENCE


def test_once_for_all_partitions_with_the_command() -> None:
    found = [of(Kind.MISSING, "orders", 3), of(Kind.EXTRA, "orders", 0), of(Kind.MISSING, "orders", 0)]
    first, *others = remedies([*found, of(Kind.MOVED, "pay ments", 1)], request())
    assert first.startswith("missing, extra, moved (orders partitions 0, 3; pay ments partition 1): see with `mirror")
    assert others == [
        "  kafka-topics.sh --bootstrap-server b-1:9092,b-2:9092 --delete --topic orders",
        "  mirror resume orders",
        "  kafka-topics.sh --bootstrap-server b-1:9092,b-2:9092 --delete --topic 'pay ments'",
        "  mirror resume 'pay ments'",
    ]


def test_commands_are_as_they_are_typed_here() -> None:
    commands = Commands(program="./mirror", config="m.yaml", flow="a->b")
    lines = remedies([of(Kind.MISSING, "t", 0)], request(), commands.rendered)
    assert "`./mirror status -c m.yaml`" in lines[0]
    assert lines[-1] == "  ./mirror resume -c m.yaml --flow 'a->b' t"


def test_a_destination_with_names_of_its_own() -> None:
    """That others write to, and to which a client needs its settings."""
    secured = Endpoint(alias="b", bootstrap=(("::1", 9093),), security=SecurityOptions(tls=TlsOptions()))
    asked = request(destination=secured, offsets="mapped", rename=lambda topic: f"east.{topic}")
    lines = remedies([of(Kind.MISSING, "t", 0)], asked)
    assert lines[1:] == [
        "  (only if nobody else writes to it; otherwise, give the flow another topic.rename)",
        "  kafka-topics.sh --bootstrap-server [::1]:9093 --command-config FILE --delete --topic east.t",
        "  mirror resume t",
    ]


@pytest.mark.parametrize("accepted", ACCEPTABLE)
def test_what_is_accepted_needs_nothing(accepted: str) -> None:
    found = [of(Kind(accepted), "t", 0)]
    assert len(remedies(found, request())) == 1
    assert remedies(found, request(accept=frozenset({accepted}))) == []


def test_a_whole_topic() -> None:
    assert remedies([of(Kind.ABSENT, "t", None)], request())[0].startswith("absent (t): correct the flow's topics")


def test_many_topics_are_counted() -> None:
    found = [of(Kind.MISSING, f"t{at:02}", 0) for at in range(MOST_NAMED + 2)]
    first, *others = remedies(found, request())
    assert "t09 partition 0; and 2 more topics)" in first
    assert len(others) == 2 * MOST_NAMED + 1
    assert others[-1] == "  and 2 more topics"


def test_another_name_needs_offsets_of_its_own() -> None:
    """Readers of exact copies take the source's name, so that nothing would be compared, and all would be well."""
    renamed = request(rename=lambda topic: f"east.{topic}")
    with pytest.raises(ValueError, match=r"topic t is east\.t at the destination: only with offsets: mapped"):
        renamed.destination_of("t")
    assert request(rename=str).destination_of("t") == "t"
