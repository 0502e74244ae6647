"""The certificate: what it says is read again as it was written."""

import json
from typing import Any

import pytest

from mirror.service.cutover.certificate import Audit, CertificateUnreadable, certificate, certified
from tests.service.cutover.worlds import SUBJECT, row


def written(**more: Any) -> dict[str, Any]:
    data = certificate(
        SUBJECT, [row(0), row(1, end=5)], program="1.2.3", exact=True, audit=Audit("identical", 0), groups=[],
        not_covered=[], stood_still_s=5.0, at=0.0,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(json.dumps(data | more))
    return found


def test_it_is_read_as_it_was_written() -> None:
    assert written()["time"] == "1970-01-01T00:00:00+00:00"
    subject, rows, audit = certified(written())
    assert (subject, audit) == (SUBJECT, Audit("identical", 0))
    assert [(key, each.source_end, each.source_id) for key, each in rows.items()] == [
        (("orders", 0), 10, "a" * 32), (("orders", 1), 5, "a" * 32),
    ]  # fmt: skip
    assert certified(written(audit={"verdict": "skipped", "exit_code": None}))[2] == Audit("skipped")


def test_the_leaders_then() -> None:
    """Earlier versions did not write them down."""
    data = written()
    for epochs in ((3, 4), (-1, -1)):
        (first, *_) = certified(data)[1].values()
        assert (first.source_epoch, first.destination_epoch) == epochs
        for each in data["partitions"]:
            each.pop("source_epoch", None), each.pop("destination_epoch", None)


@pytest.mark.parametrize(
    "data",
    [
        [], None, {}, written(version=2), written(flow=1), written(partitions=[{}]), written(partitions=None),
        written(audit={}), written(partitions=[written()["partitions"][0] | {"source_end": "ten"}]),
    ],
)  # fmt: skip
def test_what_is_none(data: Any) -> None:
    with pytest.raises(CertificateUnreadable):
        certified(data)
