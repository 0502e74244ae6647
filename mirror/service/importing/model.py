"""What was read, what becomes of it, and what is written: plain data, and the ledger that accounts for every key."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

Path = tuple[str, ...]
"""Where a setting of ours stands, such as ("flows", "a->b", "topics")."""


class Fate(IntEnum):
    """What becomes of a key of the input. Of several, the highest counts."""

    NOT_NEEDED = 0
    TAKEN = 1
    DECIDE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A key of the input with its value. Only settings that are no secrets may be shown with their value.

    Attributes:
        name: as the input spells it; of a resource in YAML, the path of the key.
        value: as text.
        line: where it stands, from 1.
        shown: whether the name may be repeated: of a mistyped line it may be a part of a secret.
    """

    name: str
    value: str
    line: int
    shown: bool = True

    @property
    def place(self) -> str:
        """The name and the line, for comments."""
        return f"{self.name}, line {self.line}" if self.shown else f"line {self.line}, not shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A line of what is written.

    Attributes:
        path: where it stands.
        value: text, number, switch, or list of texts; text may hold ``${env:NAME}`` and ``${file:PATH}``.
        given: the keys of the input that it comes from; none: it is chosen here.
        note: why it is as it is; may be empty.
    """

    path: Path
    value: str | int | bool | tuple[str, ...] | dict[str, str]
    given: tuple[Given, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """What became of one key, and why."""

    given: Given
    fate: Fate
    why: str


class Ledger:
    """Accounts for every key of the input: each has one fate in the end, however many flows and clusters use it."""

    def __init__(self) -> None:
        self._fates: dict[Given, tuple[Fate, tuple[str, ...]] | None] = {}
        self._remarks: dict[str, None] = {}

    def add(self, given: Given) -> Given:
        """Notes a key that was read. Returns it."""
        self._fates.setdefault(given, None)
        return given

    def taken(self, given: Given) -> None:
        """The key is in what is written."""
        self._account(given, Fate.TAKEN, "")

    def not_needed(self, given: Given, why: str) -> None:
        """The key has no counterpart, and needs none."""
        self._account(given, Fate.NOT_NEEDED, why)

    def decide(self, given: Given, why: str) -> None:
        """The key has no equal here, and somebody has to decide what to do."""
        self._account(given, Fate.DECIDE, why)

    def account(self, given: Given, fate: Fate, why: str) -> None:
        """The key has this fate."""
        self._account(given, fate, why)

    def remark(self, why: str) -> None:
        """Adds a decision that belongs to no single key."""
        self._remarks[why] = None

    def is_open(self, given: Given) -> bool:
        """Returns True if nothing has been said of this key yet."""
        return self._fates[given] is None

    def open(self) -> Iterator[Given]:
        """Yields the keys of which nothing has been said yet."""
        yield from [given for given, fate in self._fates.items() if fate is None]

    def accounts(self, fate: Fate) -> list[Account]:
        """Returns the keys with this fate, in the order of the input."""
        found = (
            Account(given, entry[0], "; ".join(why for why in entry[1] if why))
            for given, entry in self._fates.items()
            if entry is not None and entry[0] == fate
        )
        return sorted(found, key=lambda account: (account.given.line, account.given.name))

    @property
    def remarks(self) -> list[str]:
        """Decisions that belong to no single key."""
        return list(self._remarks)

    def __iter__(self) -> Iterator[Given]:
        yield from self._fates

    def _account(self, given: Given, fate: Fate, why: str) -> None:
        before = self._fates[given]
        if before is None or fate > before[0]:
            self._fates[given] = (fate, (why,))
        elif fate == before[0] and why not in before[1]:
            self._fates[given] = (fate, (*before[1], why))


@dataclass(slots=True, kw_only=True)
class ClusterInput:
    """A cluster of the input.

    Attributes:
        settings: (client, key) -> what is given. The client is consumer, producer or admin; empty: all of them.
        made: settings of ours that were made of something else than keys, such as a resource's references to secrets.
        line: where it is first named.
    """

    alias: str
    line: int
    settings: dict[tuple[str, str], Given] = field(default_factory=dict)
    made: list[Setting] = field(default_factory=list)
    is_source: bool = False
    is_destination: bool = False


@dataclass(slots=True, kw_only=True)
class FlowInput:
    """A flow of the input that is enabled.

    Attributes:
        settings: key -> what is given for this flow, or for all.
        clients: (client, key) -> what is given for this flow's clients.
        off: why it is written with ``enabled: false``; empty: it is not.
    """

    source: str
    destination: str
    line: int
    settings: dict[str, Given] = field(default_factory=dict)
    clients: dict[tuple[str, str], Given] = field(default_factory=dict)
    off: str = ""

    @property
    def name(self) -> str:
        return f"{self.source}->{self.destination}"


@dataclass(slots=True, kw_only=True)
class Inputs:
    """All that was read.

    Attributes:
        shared: key -> what is given for all clusters that have nothing of their own.
        providers: name of a ConfigProvider -> its Java class.
    """

    file: str
    ledger: Ledger
    clusters: dict[str, ClusterInput] = field(default_factory=dict)
    flows: dict[str, FlowInput] = field(default_factory=dict)
    shared: dict[str, Given] = field(default_factory=dict)
    providers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What is written: settings in order, notes on flows and clusters, and the ledger.

    Attributes:
        notes: path of a cluster or a flow -> comments above it.
    """

    file: str
    ledger: Ledger
    settings: list[Setting] = field(default_factory=list)
    notes: dict[Path, list[str]] = field(default_factory=dict)

    def note(self, path: Path, lines: Iterable[str]) -> None:
        """Adds comments above a cluster or a flow."""
        self.notes.setdefault(path, []).extend(lines)
