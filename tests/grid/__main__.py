"""``python -m tests.grid [PAIR]``: plays the grid on real brokers, and writes docs/results/GRID.md (half an hour).

PAIR: a regular expression; only pairs such as "2.8.2 to 4.3.0" that it matches, and nothing is written to docs.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.commit import of_now, since
from mirror.sandbox import SandboxCluster
from mirror.sandbox.cluster import start_together
from tests.grid.kinds import KINDS, Kind, Place
from tests.legacy.logs import consumed
from tests.patience import PATIENT
from tests.service.stage.kafka_side import create_topic
from tests.service.stage.running import config_text, mirror, status
from tests.vectors.load import CODECS

DOCUMENT = Path("docs/results/GRID.md")
OLDEST = "0.10.2.2"
SOURCES = ("4.3.0", "3.9.2", "2.8.2", OLDEST)
"""2.8.2 stores what it gets in the format of 0.10 (``log.message.format.version``)."""
DESTINATIONS = ("4.3.0", "3.9.2")
OLD_FORMAT = {"log.message.format.version": "0.10.2", "inter.broker.protocol.version": "0.10.2"}
CLEANED_FOR_S = 10.0
EQUAL, CLEANED, NOT_THERE = "equal", "equal but for what was cleaned", "–"


HEAD = """\
# The grid

Every kind of batch, in every codec, from brokers of one version to brokers of another, written by librdkafka and copied
with `offsets: exact`. Written by `python -m tests.grid` from what was run; do not edit.

At commit {commit}.

* **equal**: a consumer of the copy gets the same records at the same offsets, with the same keys, values, headers and
  timestamps.
* **equal but for what was cleaned**: the source's cleaner has taken more since; nothing else differs.
* **{not_there}**: there is no such thing: old formats know no transactions, no headers and no zstd; brokers of 3.9 and
  later write no old formats; 0.10 deletes no records on demand.
* *Audit*: of 0.10 it says *unverifiable*: that does not tell whether a topic is compacted, so gaps have no known cause.
* *Old formats*: 2.8.2 stores what it gets as Kafka 0.10 did (magic 1), and so does 0.10.2.2; *magic 0* as 0.9 did.
"""


class Pair(NamedTuple):
    """Two versions of brokers."""

    source: str
    destination: str

    def __str__(self) -> str:
        return f"{self.source} to {self.destination}"

    @property
    def stores_old(self) -> bool:
        """The source stores magic 0 or 1."""
        return self.source in ("2.8.2", OLDEST)

    def has(self, kind: Kind, codec: str) -> bool:
        """Whether there is such a thing."""
        if self.stores_old:
            no_deletion = self.source == OLDEST and kind.name == "mid-batch start"
            return not kind.needs_new and codec != "zstd" and not no_deletion
        return kind.name != "magic 0"


class Played(NamedTuple):
    """What came of a pair: (kind, codec) -> the result; batches that were opened, by reason; what the audit said."""

    results: Mapping[tuple[str, str], str]
    opened: Mapping[str, int]
    audit: str


def main() -> int:
    """Returns the exit code: 0 if everything was equal."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    begun = of_now(str(DOCUMENT))
    pairs = [Pair(one, other) for one in SOURCES for other in DESTINATIONS]
    found = {pair: play(pair) for pair in pairs if re.search(only, str(pair))}
    text = document(found, since(begun, str(DOCUMENT)))
    if only:
        print(text)
    else:
        DOCUMENT.write_text(text, encoding="utf-8")
        print(f"written to {DOCUMENT}")
    wrong = [one for played in found.values() for one in played.results.values() if one not in (EQUAL, CLEANED)]
    # Kafka 0.10 does not say whether a topic is compacted, so its gaps have no cause that the audit could know.
    audited = all(
        played.audit.startswith("exit 3: unverifiable" if pair.source == OLDEST else "exit 0")
        for pair, played in found.items()
    )
    return 0 if found and not wrong and audited else 1


def play(pair: Pair) -> Played:
    """Fills the source, copies it with one mirror, compares both sides, and audits them."""
    print(f"{pair} ...", flush=True)
    cells = {_topic(kind, codec): (kind, codec) for kind in KINDS for codec in CODECS if pair.has(kind, codec)}
    properties = {**PATIENT, "auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "200"}
    if pair.source == "2.8.2":
        properties |= OLD_FORMAT
    here = SandboxCluster(name="source", version=pair.source, properties=properties, quick=True, heap_mb=512)
    there = SandboxCluster(name="destination", version=pair.destination, quick=True, heap_mb=512)
    with tempfile.TemporaryDirectory() as folder:
        try:
            start_together(here, there)
            _fill(pair, cells, here.bootstrap_servers, there.bootstrap_servers)
            return _copied(pair, cells, here.bootstrap_servers, there.bootstrap_servers, Path(folder))
        finally:
            here.close()
            there.close()


def _topic(kind: Kind, codec: str) -> str:
    return f"{kind.name.replace(' ', '-')}-{codec}"


def _fill(pair: Pair, cells: Mapping[str, tuple[Kind, str]], here: str, there: str) -> None:
    for topic, (kind, codec) in cells.items():
        configs = {**kind.here, **({"message.format.version": "0.9.0"} if kind.name == "magic 0" else {})}
        create_topic(here, topic, **_named(configs))
        # Kafka 0.10 does not tell the configs of a topic, so the mirror creates none of its topics.
        if kind.there or pair.source == OLDEST:
            create_topic(there, topic, **_named(kind.there))
        kind.fill(Place(here, topic, codec, old=pair.stores_old))
    time.sleep(CLEANED_FOR_S)


def _named(configs: Mapping[str, str]) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in configs.items()}


def _copied(pair: Pair, cells: Mapping[str, tuple[Kind, str]], here: str, there: str, folder: Path) -> Played:
    before = {topic: consumed(here, topic) for topic in cells}
    config = folder / "mirror.yaml"
    flow = {"on.gap": "continue"} if pair.source == OLDEST else {}
    with mirror(config, config_text(here, there, [*cells], flow=flow)) as process:
        process.wait_event("caught_up")
        opened = Counter(status(process)["flows"][0]["opened"])
        process.stop()
        halted = {str(line["topic"]): str(line["reason"]) for line in process.of("halted")}
    results = {}
    for topic, (kind, codec) in cells.items():
        results[kind.name, codec] = halted.get(topic) or _compared(kind, before[topic], here, there, topic)
    command = [sys.executable, "-m", "mirror", "audit", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    verdict = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), done.stderr[-300:])
    print(f"{pair}: {Counter(results.values())}, audit: exit {done.returncode}", flush=True)
    if done.returncode:
        print(done.stdout[-3_000:], done.stderr[-1_000:], flush=True)
    return Played(results, opened, f"exit {done.returncode}: {verdict.strip()}")


def _compared(kind: Kind, before: Sequence[object], here: str, there: str, topic: str) -> str:
    copied, after = consumed(there, topic), consumed(here, topic)
    if not copied:
        return "nothing was copied"
    if copied == after:
        return EQUAL
    if kind.cleaned and set(map(repr, after)) <= set(map(repr, copied)) <= set(map(repr, before)):
        return CLEANED
    return "DIFFERENT"


def document(found: Mapping[Pair, Played], commit: str) -> str:
    """Returns the text of docs/results/GRID.md. ``commit``: of what was played."""
    lines = HEAD.format(commit=commit, not_there=NOT_THERE).split("\n")
    for pair, played in found.items():
        lines += [f"## {pair}", "", f"| | {' | '.join(CODECS)} |", f"| :-- |{' :-- |' * len(CODECS)}"]
        for kind in KINDS:
            row = [played.results.get((kind.name, codec), NOT_THERE) for codec in CODECS]
            lines.append(f"| {kind.name} | {' | '.join(row)} |")
        opened = ", ".join(f"{count} {reason}" for reason, count in sorted(played.opened.items())) or "none"
        lines += ["", f"Batches that were opened: {opened}. Audit: {played.audit}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
