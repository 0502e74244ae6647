"""The data of an import: the input, the settings to write, and the ledger that accounts for every key of the input."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

Path = tuple[str, ...]
"""The path of a setting in the mirror's configuration, such as ("flows", "a->b", "topics")."""


class Fate(IntEnum):
    """What becomes of a key of the input. If several apply, the highest counts."""

    NOT_NEEDED = 0
    TAKEN = 1
    DECIDE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A key of the input with its value. Values of secrets must not be shown.

    Attributes:
        name: the key as the input spells it; for a resource in YAML, the path of the key.
        value: the value as text.
        line: line in the file, from 1.
        shown: True if the name may be shown. In a mistyped line, it may be a part of a secret.
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
    """A setting to write.

    Attributes:
        path: its path in the configuration.
        value: text, number, switch, list of texts, or mapping; text may have ``${env:NAME}`` and ``${file:PATH}``.
        given: the keys of the input from which it was made; empty if the import has chosen it.
        note: the reason for its value; may be empty.
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
        """Accounts for a key that was taken over."""
        self._account(given, Fate.TAKEN, "")

    def not_needed(self, given: Given, why: str) -> None:
        """Accounts for a key that has no counterpart here, and needs none."""
        self._account(given, Fate.NOT_NEEDED, why)

    def decide(self, given: Given, why: str) -> None:
        """Accounts for a key that has no equivalent here: the user has to decide what to do."""
        self._account(given, Fate.DECIDE, why)

    def account(self, given: Given, fate: Fate, why: str) -> None:
        """Accounts for a key with this fate."""
        self._account(given, fate, why)

    def remark(self, why: str) -> None:
        """Adds a decision that does not belong to a single key."""
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
        """Decisions that do not belong to a single key."""
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
        alias: the cluster's name.
        line: line of the file in which it is first named.
        settings: (client, key) -> key and value in the input. The client is consumer, producer or admin; empty: all.
        made: the mirror's settings that were not made from keys, but for example from a resource's references to
            secrets.
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
        settings: key -> key and value for this flow, or for all flows.
        clients: (client, key) -> key and value for this flow's clients.
        off: why the flow is written with ``enabled: false``; empty if it is enabled.
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
    """The whole input.

    Attributes:
        shared: key -> key and value for all clusters that do not have the key themselves.
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
    """The result: settings in the order in which they are written, comments, and the ledger.

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
