"""The shipped alerts over time: what pages, and how often."""

from collections.abc import Iterator

from tests.service.telemetry.stage.alerts import Rule, Samples, pages, rules

SCRAPE_S = 15
RESTART_S = 150
"""From the drain of one process until another has read the partition's halt again."""
HALTED = {"source": "a", "target": "b", "topic": "t", "partition": "0", "reason": "corrupt"}


def rule(name: str) -> Rule:
    (found,) = (each for each in rules() if each.alert == name)
    return found


def halted_at(*instances: tuple[str, int]) -> Iterator[tuple[float, Samples]]:
    """Scrapes while the halt is told by one instance after another, each for so many seconds; "" tells nothing."""
    at_s = 0.0
    for instance, for_s in instances:
        for _ in range(for_s // SCRAPE_S):
            told = [(HALTED | {"instance": instance}, 1.0)] if instance else []
            yield at_s, {"mirror_partition_halted": told}
            at_s += SCRAPE_S


def test_a_halt_pages_once() -> None:
    """
    1. A halt pages, within two minutes.
    2. A rolling restart takes it away for a while, and another instance tells of it: nobody is paged again.
    3. The same without what the rule has for that: paged twice.
    """
    halted = rule("MirrorPartitionHalted")
    assert sum(pages(halted, halted_at(("one", 120))).values()) == 1
    rolling = [("one", 300), ("", RESTART_S), ("two", 300), ("", RESTART_S), ("one", 300)]
    assert sum(pages(halted, halted_at(*rolling)).values()) == 1
    assert sum(pages(halted._replace(keep_firing_for_s=0), halted_at(*rolling)).values()) == 3


def test_a_halt_of_one_scrape_does_not_page() -> None:
    """What heals at the next look (a topic that is being made, say) is gone again."""
    assert not pages(rule("MirrorPartitionHalted"), halted_at(("one", 30), ("", 60)))


def test_a_halt_that_was_seen_to_can_page_again() -> None:
    halted = rule("MirrorPartitionHalted")
    assert sum(pages(halted, halted_at(("one", 300), ("", 900), ("one", 300))).values()) == 2


def test_skipped_offsets_page_for_an_hour() -> None:
    """By the time of the decision, so that a mirror that is restarted right behind it tells of it all the same."""
    skipped = rule("MirrorOffsetsSkipped")
    scraped: Samples = {"mirror_last_skip_timestamp_seconds": [({"topic": "t", "partition": "0"}, 1_000.0)]}
    assert skipped.held(scraped, 1_060.0)
    assert not skipped.held(scraped, 1_000.0 + 3_601)


def test_a_certificate_that_ends() -> None:
    """Two weeks before, and afterwards, until it is replaced."""
    expiry = rule("MirrorCertificateExpiry")
    day_s = 86_400
    told: Samples = {
        "mirror_tls_certificate_expiry_timestamp_seconds": [({"cluster": "a", "subject": "CN=x"}, 100.0 * day_s)]
    }
    assert [bool(expiry.held(told, at * day_s)) for at in (80, 85, 87, 99, 101)] == [False, False, True, True, True]
