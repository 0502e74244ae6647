"""The page of an audit: it needs nothing else, shows what was found, and believes no name."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.result import AuditResult, SkippedRange, Undecided, Verdict
from mirror.audit.page import page as module
from mirror.audit.page.page import page
from tests.audit.test_report import cleaned, finding, result

VOID = {"meta"}


class Elements(HTMLParser):
    """Fails at an element that is not closed, or closed out of turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} is closed out of turn: {self.text[-80:]}"

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def read(shown: AuditResult, *remedies: str) -> Elements:
    found = Elements()
    found.feed(page(shown, remedies))
    found.close()
    assert found.open == []
    return found


def test_an_identical_copy() -> None:
    found = read(result())
    assert "Nothing is missing, nothing is doubled, nothing is changed." in found.text
    assert "hold the same 100 records in 10 batches, byte for byte" in found.text
    assert ("div", {"class": "verdict identical"}) in found.seen
    assert "Findings" not in found.text
    assert "What to do" not in found.text


def test_what_a_log_cleaner_has_removed_is_no_nothing() -> None:
    found = read(cleaned(7))
    assert "Nothing is missing but what a log cleaner has removed at b. Nothing is doubled, nothing is changed." in (
        found.text
    )
    assert "7 records are no longer at b, and still at a" in found.text
    assert "Nothing is missing, nothing is doubled" in read(cleaned(0)).text


def test_it_loads_nothing_and_runs_nothing() -> None:
    """Neither from elsewhere nor from beside it: it is read years later, from a mail."""
    shown = result(finding(Kind.CORRUPT, 20), notes=("a note",))
    found = read(shown, "do this")
    assert not {tag for tag, _ in found.seen} & {"script", "link", "img", "iframe", "object", "embed", "form", "a"}
    assert not [name for _, given in found.seen for name in given if name in {"src", "href"} or name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", page(shown))


def test_names_are_text() -> None:
    """A topic, an alias, a flow, a note or a detail that looks like HTML."""
    evil = "<script>alert(1)</script>&\"'"
    one = replace(finding(Kind.MISSING, 20), detail=evil, topic=evil)
    shown = replace(result(one, notes=(evil,)), flow=evil, source_alias=evil, destination_alias=evil)
    shown = replace(
        shown,
        source_cluster_id=evil, skipped=(SkippedRange(evil, 0, Span(3, 9), evil, 0),),
        reencoded=(replace(finding(Kind.REENCODED, 0), detail=evil),),
        coverage=tuple(replace(row, topic=evil) for row in shown.coverage),
    )  # fmt: skip
    found = read(shown, evil)
    assert "script" not in {tag for tag, _ in found.seen}
    assert found.text.count("alert(1)") >= 12


def test_findings_remedies_notes_and_what_was_skipped() -> None:
    shown = replace(
        result(finding(Kind.CORRUPT, 20, detail="bytes 7"), finding(Kind.UNVERIFIABLE, 40), notes=("a note",)),
        skipped=(SkippedRange("t", 0, Span(3, 9), "accepted", 0),),
        reencoded=(replace(finding(Kind.REENCODED, 0), detail="holes", batches=3, records=70),),
    )
    found = read(shown, "copy it again")
    for text in ("copy it again", "bytes 7", "a note", "source offsets 3 to 8", "holes370", "20 to 29", "corrupt1"):
        assert text in found.text, text
    assert shown.verdict is Verdict.DIFFERENT
    assert ("div", {"class": "verdict different"}) in found.seen


def test_each_verdict_says_what_it_means() -> None:
    assert module._MEANS.keys() == set(Verdict)


def test_roots_are_named_as_equal_only_if_they_are() -> None:
    shown = result()
    assert read(shown).text.count("the same") >= 2
    (first, *rest) = shown.coverage
    changed = replace(first, contents=(first.contents[0]._replace(digest=16 * "cd"),))
    text = read(replace(shown, coverage=(changed, *rest))).text
    proof = text[text.index("Proof") :]
    assert proof.count("the same") == 1


def test_a_page_stays_small() -> None:
    """Ten thousand findings in one partition are a thousand lines, and a map of a thousand columns."""
    many: list[Finding] = [finding(Kind.MISSING, at) for at in range(10_000)]
    shown = result(*many)
    text = page(shown)
    assert len(text) < 500_000
    assert "9,000 more are in findings.json" in text


def test_what_a_page_leaves_out_is_counted() -> None:
    """Nobody may take what is shown for all there is."""
    shown = result(
        *(finding(Kind.MISSING, 3, topic=f"t-{at}") for at in range(module.MOST_PARTITIONS + 7)),
        notes=tuple(f"note {at}" for at in range(module.MOST_FINDINGS + 3)),
    )
    rows = [replace(row, topic=f"t-{at}") for row in shown.coverage[::2] for at in range(module.MOST_PARTITIONS + 9)]
    skipped = (SkippedRange("t-0", 0, Span(1, 2), "why", 0),) * (module.MOST_FINDINGS - 1)
    hidden = (Undecided(Side.SOURCE, "t-0", 0, Span(5, 9)),) * 3
    text = read(replace(shown, coverage=tuple(rows), skipped=skipped, undecided=hidden)).text
    for told in (
        "9 more partitions, 7 of them with findings, are in coverage.json",
        "9 more are in certificate.json",
        "2 more are in summary.json",
        "3 more are in summary.json",
    ):
        assert told in text
    assert text.count("behind an open transaction;") == 1
    without = replace(shown, findings=(), coverage=tuple(rows))
    assert "9 more partitions, without findings, are in coverage.json" in read(without).text
