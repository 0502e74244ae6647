"""The status page: what is on it, without a browser. Names, details and remedies are hostile."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from mirror.service.http.page import document
from mirror.service.http.page.document import LINKS, MOST_BEHIND, MOST_TOLD, POLICY, page
from mirror.service.telemetry import status as tables
from tests.service.flows.test_overview import active, shown, two
from tests.service.telemetry.stage.rows import row

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>`</code><b>"
VOID = {"meta", "link", "br", "img"}


class Read(HTMLParser):
    """What a browser makes of a page: elements with their attributes, text, and whether all that is open is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.within: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        self.within.get(inside, self.text).append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def read(*rows: Any, **changes: Any) -> Read:
    return Read(page(shown(*two(list(rows), [active(7, 50)])) | changes))


def halted(partition: int = 3, **changes: Any) -> Any:
    usual = {"state": "halted", "reason": "corrupt", "detail": "It is.", "remedy": "See to it.", "lag_records": None}
    return row("u", partition, **(usual | changes))


def check_harmless(found: Read) -> None:
    """It has the elements and the attributes that a page has, whatever is on it."""
    names = {name for name, _ in found.elements}
    assert not names & {"img", "b"}
    assert (len(found.all("script")), len(found.all("style"))) == (1, 1)
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]


def test_what_is_on_it() -> None:
    """Flows with states, lag and what was copied; halts with their remedies; what is paused and why others wait; who is
    behind; workers."""
    waits = row("u", 4, state="locating", waits="no leader", waits_since=1.5)
    found = read(active(5, 100), halted(), waits, row("u", 5, state="paused"))
    for said in (
        "ready", "west->east", "1 active", "1 halted", "1 locating", "1 paused", "5 records", "250 records",
        "all batches copied as they are", "west up", "u-3 west->east : corrupt", "It is.",
        "Remedy: See to it.", "Paused by an operator u-5", "no leader", "Furthest behind",
    ):  # fmt: skip
        assert said in found.words, said
    assert [each["data-name"] for each in found.all("article") if "data-flow" in each] == ["west->east", "west->hub"]
    assert [each["data-part"] for each in found.all("section")] == [
        "verdict", "flows", "halted", "resting", "behind", "workers",
    ]  # fmt: skip
    assert {str(each["href"]) for each in found.all("a")} >= set(LINKS)


def test_all_is_well() -> None:
    """Then nothing is shown of what is not there."""
    found = read(active(0, 100))
    assert "Halted" not in found.words
    assert "Paused" not in found.words
    assert "mirror: ready" in found.words


def test_what_is_not_known() -> None:
    """It is said, and never shown as 0."""
    found = read(active(None, 100))
    assert "Lag unknown" in found.words
    assert [each["data-lag"] for each in found.all("article") if "data-flow" in each] == ["", "7"]


def test_not_ready() -> None:
    found = Read(page(shown(*two([active(0, 1)], [halted()], up=False))))
    assert "mirror: not ready, 1 halted" in found.words
    assert "west->hub: every partition here is halted (1)" in found.words
    assert "hub away" in found.words


@pytest.mark.parametrize("field", ["topic", "reason", "detail", "remedy", "waits", "state", "destination"])
def test_everything_is_escaped(field: str) -> None:
    """
    1. Whatever a cluster says is text: no element and no attribute comes of it.
    2. What is in backticks is shown as code, and stays text as well.
    """
    for given in (halted(), row("u", 4, state="paused"), row("u", 5, waits="w", lag_records=3)):
        evil: dict[str, Any] = {"waits_since": 1.0, field: EVIL}
        check_harmless(read(given._replace(**evil)))


def test_names_of_flows_and_groups_are_escaped() -> None:
    now = shown(*two([active(1, 100)], [active(7, 50)]))
    for flow in now["flows"]:
        flow |= {"flow": EVIL, "flow_id": EVIL, "group": EVIL, "clusters": [{"cluster": EVIL, "up": False}]}
    now |= {"version": EVIL, "address": EVIL, "not_ready": [], "remarks": []}
    evil = Read(page(now))
    check_harmless(evil)
    assert EVIL in evil.words
    assert evil.all("article")[0]["data-name"] == EVIL


def test_commands_are_code() -> None:
    assert document._sentence("Run `mirror resume t 0`, then <wait>.") == (
        "Run <code>mirror resume t 0</code>, then &lt;wait&gt;."
    )


def test_very_many() -> None:
    """Ten thousand halted partitions: the page stays small, and says how many are not on it."""
    found = read(*(halted(number) for number in range(10_000)))
    assert len([each for each in found.all("article") if each.get("class") == "halt"]) == MOST_TOLD
    assert f"and {10_000 - MOST_TOLD:,} more" in found.words
    assert len(page(shown(*two([halted(number) for number in range(10_000)], [])))) < 100_000
    behind = read(*(row("b", number, lag_records=number + 1) for number in range(100)))
    assert len([each for each in behind.all("tr")]) - 2 == MOST_BEHIND + 1
    assert behind.words.index("b-99") < behind.words.index("b-98")


def test_without_scripts() -> None:
    """It asks for itself again; with them, only its parts are asked for."""
    text = page(shown(*two([active(5, 100)], [])))
    assert '<noscript><meta http-equiv="refresh"' in text
    assert text.count("http-equiv") == 1


def sources(policy: str) -> dict[str, list[str]]:
    return {name: words for name, *words in (each.split() for each in policy.split("; "))}


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_nothing_else_may_run() -> None:
    """The policy allows exactly the script and the style that are in the page; the page has nothing that it forbids."""
    found = read(halted(), active(5, 100))
    allowed = sources(POLICY)
    assert allowed["default-src"] == ["'none'"]
    assert allowed["script-src"] == [digest("".join(found.within["script"]))]
    assert allowed["style-src"] == [digest("".join(found.within["style"]))]
    assert (len(found.all("script")), len(found.all("style"))) == (1, 1)
    assert not [name for _, attributes in found.elements for name in attributes if name in ("style", "src", "action")]
    assert [each["href"] for each in found.all("link")] == ["data:,"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page(shown(*two([active(5, 1)], []))))


def test_the_tables_have_a_policy_as_well() -> None:
    found = Read(re.sub("<meta[^>]*>", "", tables.as_html(shown(*two([halted()], [])))))
    assert sources(tables.POLICY)["style-src"] == [digest("".join(found.within["style"]))]
    assert not found.all("script")


def test_it_can_be_read_aloud() -> None:
    """A language, headings in order, tables with heads; regions that scroll can be reached with the keyboard."""
    found = read(halted(), active(5, 100))
    assert found.all("html")[0]["lang"] == "en"
    levels = [int(name[1]) for name, _ in found.elements if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(each.get("scope") == "col" for each in found.all("th"))
    scrolling = [each for each in found.all("div") if each.get("class") == "scroll"]
    assert scrolling
    assert all(each["role"] == "region" and each["tabindex"] == "0" and each["aria-label"] for each in scrolling)
    assert found.all("meta")[1]["name"] == "viewport"
