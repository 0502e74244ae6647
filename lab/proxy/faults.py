"""The actions on one frame, and the fault that waits for a frame."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab.evidence import FRAME_CUT, FRAME_HELD, LATE, WATCHED, WRONG_ANSWER, Record
from lab.proxy.answers import Only, entries
from lab.proxy.frames import Direction, Frame

if TYPE_CHECKING:
    from lab.proxy.link import Link

WAIT_S = 120.0
"""Longer than anything takes on a loaded machine: a wait that reaches it is in vain."""
Where = Callable[[Frame], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Breaks the connection, both ways, after so many bytes of the frame (None: after all of it; where the frame has
    fewer, after the remainder of dividing by their number: it is cut all the same).

    A request cut after all of it: the broker does its work, and the client gets no answer. An answer cut after 0 bytes:
    the same, and the proxy has seen that the work was done. ``reset``: by RST instead of FIN.
    """

    direction: Direction
    after_bytes: int | None = 0
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keeps the frame, and all that follow it on this connection in its direction, until ``Fault.deliver``, even if the
    sender dies meanwhile; ``Fault.drop`` breaks the connection instead."""

    direction: Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoil:
    """Lets the broker do its work, and puts this error code into each entry of its answer (that ``only`` selects).
    An answer without entries, such as that of a fetch session without news, is not hit."""

    code: int
    only: Only | None = None
    direction: Direction = Direction.ANSWERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Keeps the request from the broker, and answers it with this error code in every entry."""

    code: int
    direction: Direction = Direction.REQUESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Does nothing: the frame is only seen (and can be sent again, ``Proxy.replay``)."""

    direction: Direction


Action = Cut | Hold | Spoil | Refuse | Watch
_SEEN = {Cut: FRAME_CUT, Hold: FRAME_HELD, Spoil: WRONG_ANSWER, Refuse: WRONG_ANSWER, Watch: WATCHED}


def cut_request(after_bytes: int | None = 0, *, reset: bool = False) -> Cut:
    """See ``Cut``."""
    return Cut(direction=Direction.REQUESTS, after_bytes=after_bytes, reset=reset)


def cut_answer(after_bytes: int | None = 0, *, reset: bool = False) -> Cut:
    """See ``Cut``."""
    return Cut(direction=Direction.ANSWERS, after_bytes=after_bytes, reset=reset)


def hold_request() -> Hold:
    """See ``Hold``."""
    return Hold(direction=Direction.REQUESTS)


def hold_answer() -> Hold:
    """See ``Hold``."""
    return Hold(direction=Direction.ANSWERS)


def watch_request() -> Watch:
    """See ``Watch``."""
    return Watch(direction=Direction.REQUESTS)


def watch_answer() -> Watch:
    """See ``Watch``."""
    return Watch(direction=Direction.ANSWERS)


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """An action that is armed for the next frames of a kind. Made by ``Proxy.arm``.

    Attributes:
        frames: the frames that it hit, in order.
        times: how often it may still happen; None: always.
        skip: how many matching frames still pass unharmed before.
    """

    name: str
    action: Action
    where: Where | None
    node_id: int | None
    times: int | None
    skip: int
    call: Callable[[Callable[[], object]], Any]
    """Runs a function in the proxy's thread."""
    record: Record
    """The proxy's record."""
    frames: list[Frame] = field(default_factory=list)
    held: "list[tuple[Link, Callable[[], None]]]" = field(default_factory=list)
    """The links that hold something, each with the function that lets it go."""
    _came: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)
    answer_seen: Frame | None = None
    delivered: bool = False
    """True once the frames that it held were passed on."""

    def hits(self, frame: Frame) -> bool:
        """Returns True if it happens to this frame, and counts it then. In the proxy's thread."""
        if (
            self.times == 0
            or frame.direction is not self.action.direction
            or frame.name != self.name
            or (self.node_id is not None and frame.node_id != self.node_id)
            or (self.where is not None and not self.where(frame))
            or (isinstance(self.action, Spoil) and not entries(frame.decode()))
        ):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        self.frames.append(frame)
        return True

    def happened(self) -> None:
        """Note it as evidence, and wake everybody who waits. In the proxy's thread."""
        self.record.note(_SEEN[type(self.action)])
        self._came.set()

    def answered(self, answer: Frame) -> None:
        """Take the broker's answer to the first request that it hit. In the proxy's thread."""
        self.answer_seen = answer
        if self.delivered:
            self.record.note(LATE)
        self._answered.set()

    @property
    def came(self) -> bool:
        """True once it has happened."""
        return self._came.is_set()

    def wait(self, timeout_s: float = WAIT_S) -> Frame:
        """Wait until it has happened; returns the first frame that it hit.

        Raises:
            TimeoutError: it did not.
        """
        if not self._came.wait(timeout_s):
            raise TimeoutError(f"no {self.name} came in {timeout_s:.0f} s that {self.action} could happen to")
        return self.frames[0]

    def answer(self, timeout_s: float = WAIT_S) -> Any:
        """Returns the broker's decoded answer to the first request that it hit, even if the client is dead by then.

        Raises:
            TimeoutError: there was none.
        """
        if not self._answered.wait(timeout_s):
            raise TimeoutError(f"the broker did not answer the {self.name} in {timeout_s:.0f} s")
        assert self.answer_seen is not None
        return self.answer_seen.decode()

    def release(self) -> None:
        """Let go what is held. In the proxy's thread."""
        for _, let_go in self.held:
            let_go()
        self.held.clear()

    def deliver(self) -> None:
        """Let go what is held."""

        def release() -> None:
            assert self.held, "nothing is held"
            self.delivered = True
            self.release()

        self.call(release)

    def drop(self) -> None:
        """Lose what is held, and break its connections."""

        def cut() -> None:
            assert self.held, "nothing is held"
            for link, _ in self.held:
                link.cut()
            self.held.clear()

        self.call(cut)

    def disarm(self) -> None:
        """Let it not happen any more."""

        def never() -> None:
            self.times = 0

        self.call(never)
