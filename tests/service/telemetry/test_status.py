"""The status: what of the workers' words is shown, as an object, as text and as a page."""

import time
from typing import Any

from mirror.relay.stats import GivenUp
from mirror.service.telemetry.rows import Gone
from mirror.service.telemetry.status import LEFT_HALTED, as_html, as_text
from tests.service.telemetry.stage.alerts import firing, samples
from tests.service.telemetry.stage.fleets import NOW_MS, fleet, sample, snapshot, told
from tests.service.telemetry.stage.rows import row, stint
from tests.service.telemetry.stage.showing import exposed_of


def test_entries_that_match_nothing() -> None:
    """
    1. While it waits for its start: a worker between two looks keeps what the last one found.
    2. While it copies: a series and a remark for each entry; it is ready all the same.
    3. Gone with the next look, and with the worker.
    """
    found = fleet()
    waiting: dict[str, Any] = {"clusters": {}, "counters": {}, "silent": [], "unreached": {}}
    found.alive(1, waiting | {"unmatched": ["paymnets"]})
    found.alive(1, waiting | {"unmatched": None})
    assert sample(found, "mirror_topic_unmatched", source="source", target="destination", pattern="paymnets") == 1
    for number in (1, 2):
        found.heard(number, snapshot() | {"unmatched": ["paymnets", "log\\..*"]})
    assert (sample(found, "mirror_ready"), told(found)["ready"]) == (1, True)
    remark = "no topic of cluster source matches paymnets: check its spelling"
    assert told(found)["remarks"][0] == remark
    assert f"remark:     {remark}\n" in as_text(told(found))
    assert remark in as_html(told(found))
    assert "MirrorTopicUnmatched" in firing(samples(exposed_of(found, "1").decode()))
    found.heard(1, snapshot())
    found.ended(2)
    assert not told(found)["remarks"]
    assert sample(found, "mirror_topic_unmatched") is None


def test_what_open_transactions_keep_back() -> None:
    """Not before it is open for long; those that are open longest, and how many more there are."""
    found, now = fleet(), time.time()
    rows = [row(partition=at, held_back=1_000 + at, held_since=now - 100 - at) for at in range(7)]
    found.heard(1, snapshot(*rows, row(partition=7, held_back=9, held_since=now - 1), row(partition=8)))
    found.heard(2, snapshot())
    remarks = told(found)["remarks"]
    assert [each.split(":")[0] for each in remarks[:-1]] == ["t-6", "t-5", "t-4", "t-3", "t-2"]
    assert "open at cluster source for 106 s or longer keeps back 1,006 offsets from 50 on" in remarks[0]
    assert remarks[-1] == "and 2 more partitions"
    assert told(found)["ready"]


def test_topics_that_are_gone() -> None:
    """A series for each and an alert; some remarks, however many they are; gone with the worker that tells."""
    found = fleet()
    found.heard(1, snapshot() | {"gone_topics": ["b", "a"]})
    found.heard(2, snapshot() | {"gone_topics": ["b", *(f"c{at}" for at in range(5))]})
    assert (sample(found, "mirror_ready"), told(found)["ready"]) == (1, True)
    assert sample(found, "mirror_topic_gone", source="source", target="destination", topic="b") == 1
    remarks = told(found)["remarks"]
    assert [each.split()[5] for each in remarks[:-1]] == ["a", "b", "c0", "c1", "c2"]
    assert "cluster source has no topic a any more. Its copy stays." in remarks[0]
    assert remarks[-1] == "and 2 more topics"
    assert "MirrorTopicGone" in firing(samples(exposed_of(found, "1").decode()))
    found.heard(1, snapshot())
    found.ended(2)
    assert not told(found)["remarks"]
    assert sample(found, "mirror_topic_gone") is None


def test_where_a_renamed_topic_goes() -> None:
    """The column is there only if a topic has another name at the destination."""
    found = fleet(1)
    found.heard(1, snapshot(row()))
    assert "INTO" not in as_text(told(found))
    found.heard(1, snapshot(row(destination="west.t"), row("u")))
    now = told(found)
    assert [one["destination_topic"] for one in now["partitions"]] == ["west.t", "u"]
    (line,) = [line for line in as_text(now).splitlines() if "west.t" in line]
    assert line.split()[:4] == ["t", "0", "west.t", "active"]
    assert "west.t" in as_html(now)


def test_sentences_are_wrapped_for_a_terminal() -> None:
    """Commands stay whole, to be copied; without a terminal, each sentence is a line."""
    found = fleet(1)
    command = "`mirror resume t 0 --accept-unproven -c /etc/mirror/a-rather-long-name.yaml`"
    remedy = "compare both sides and save what only the destination has; only then run "
    remedy += f"{command.replace('t 0', 'TOPIC PARTITION')}, and look again"
    found.heard(1, snapshot(row(state="halted", reason="not_a_copy", detail="they differ " * 20, remedy=remedy)))
    now = told(found)
    assert f"    remedy: {now['partitions'][0]['remedy']}\n" in as_text(now)
    text = as_text(now, width=80)
    sentences = text[text.index("halted\n") :].splitlines()
    assert all(len(line) <= 80 or command in line for line in sentences)
    assert any(command in line for line in sentences)
    assert " ".join(text.split()).count("they differ") == 20
    assert "COMMITTED: the group's offset at the source" in text


def test_why_a_partition_is_not_copied_for_now() -> None:
    found = fleet(1)
    waits = "destination broker 2 at h:1: Connection refused"
    found.heard(
        1, snapshot(row(state="locating", lag_records=None, waits=waits, waits_since=1_700_000_000.0), row("u"))
    )
    now = told(found)
    assert [(one["waits"], one["waits_since"]) for one in now["partitions"]] == [(waits, 1_700_000_000.0), (None, None)]
    text = as_text(now)
    assert "not copied for now\n" in text
    assert f"2023-11-14 22:13:20Z  {waits}\n" in text
    assert waits in as_html(now)


def test_status() -> None:
    """States, halts with remedies, skipped ranges, workers: in the object, as text and as a page that escapes."""
    found = fleet()
    found.heard(
        1,
        snapshot(
            row(topic="b", committed=-1),
            row(topic="a<b>", state="halted", position=-1, reason="recreated", detail="id 1, before 2", remedy="do it"),
            skipped=(GivenUp("b", 0, 10, 20, "on.gap", NOW_MS),),
        ),
    )
    now = told(found)
    assert [one["topic"] for one in now["partitions"]] == ["a<b>", "b"]
    assert (now["partitions"][0]["position"], now["partitions"][1]["committed"]) == (None, None)
    assert now["skipped"][0]["next"] == 20
    text = as_text(now)
    for line in (
        "partitions: 1 active, 1 halted; 2 in the flow",
        "  a<b>-0: recreated",
        "    remedy: do it",
        "2023-11-14 22:13:20Z",
        "joining",
    ):
        assert line in text
    assert max(map(len, text.splitlines())) < 120
    page = as_html(now)
    assert "a&lt;b&gt;" in page
    assert "<b>" not in page
    assert "<script" not in page


def test_a_halt_is_shown_while_nobody_holds_its_partition() -> None:
    """
    1. Two partitions halt. The source goes away: the worker is out of the group, and has them no more; it may die, too.
       Both halts are shown, with their remedies, and count as none of those that are held here.
    2. The source is back, one partition is held here again, and somebody else has the other: nothing is left of it.
    3. What is held here goes on. When it is let go the next time, its halt is history.
    """
    for event in ("let go", "ended"):
        found = fleet(1)
        halted: dict[str, Any] = {
            "state": "halted",
            "reason": "foreign_writer",
            "detail": "offset 7",
            "remedy": "do it",
        }
        found.heard(1, snapshot(row(**halted), row(partition=1, **halted)))
        assert (told(found)["left_halted"], len(found.halted)) == ([], 2)
        if event == "let go":
            out = snapshot(gone=(Gone("t", 0, stint()), Gone("t", 1, stint())))
            out["gauges"]["joined"] = 0
            found.heard(1, out)
        else:
            found.ended(1)
        now = told(found)
        assert [(one["topic"], one["partition"], one["reason"]) for one in now["left_halted"]] == [
            ("t", 0, "foreign_writer"),
            ("t", 1, "foreign_writer"),
        ]
        assert (now["partitions"], now["unassigned_partitions"]) == ([], 2)
        text = as_text(now)
        for line in (f"\n{LEFT_HALTED}\n", "  t-1: foreign_writer", "    offset 7", "    remedy: do it"):
            assert line in text
        found.started(1, 2_000)
        found.heard(1, snapshot(row(**halted)) | {"unassigned": 1})
        assert [one["partition"] for one in told(found)["left_halted"]] == [1]
        found.heard(1, snapshot(row(**halted)) | {"unassigned": 0})
        assert (told(found)["left_halted"], len(found.halted)) == ([], 1)
        found.heard(1, snapshot(row()))
        found.heard(1, snapshot(gone=(Gone("t", 0, stint()),)) | {"unassigned": 2})
        assert [one["partition"] for one in told(found)["left_halted"]] == [1]
