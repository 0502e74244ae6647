"""The actions on a frame, and the fault, which waits for a frame to strike."""

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
"""Default timeout in seconds. It is longer than anything takes on a loaded machine."""
Where = Callable[[Frame], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Breaks the connection, in both directions, after some bytes of the frame.

    If a request is cut after its last byte, the broker does its work, and the client gets no answer. The same holds for
    an answer that is cut after 0 bytes; then the proxy has also seen that the work was done.

    Attributes:
        direction: tells whether requests or answers are hit.
        after_bytes: number of bytes that still pass, modulo the size of the frame; None: the whole frame passes.
        reset: True to break the connection by RST instead of FIN.
    """

    direction: Direction
    after_bytes: int | None = 0
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keeps the frame, and all frames behind it in the same direction of the connection, until ``Fault.deliver``, even
    if the sender dies meanwhile. ``Fault.drop`` breaks the connection instead."""

    direction: Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoil:
    """Lets the broker do its work, and puts an error code into the entries of its answer. An answer without entries,
    for example of a fetch session without news, is not hit. ``only``: selects entries; None: all of them."""

    code: int
    only: Only | None = None
    direction: Direction = Direction.ANSWERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Does not deliver the request. The proxy itself answers it, with an error code in every entry."""

    code: int
    direction: Direction = Direction.REQUESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Lets the frame pass, and only notes it. A request can then be sent again (``Proxy.replay``)."""

    direction: Direction


Action = Cut | Hold | Spoil | Refuse | Watch
_SEEN = {Cut: FRAME_CUT, Hold: FRAME_HELD, Spoil: WRONG_ANSWER, Refuse: WRONG_ANSWER, Watch: WATCHED}


def cut_request(after_bytes: int | None = 0, *, reset: bool = False) -> Cut:
    """Returns an action that cuts a request; see ``Cut``."""
    return Cut(direction=Direction.REQUESTS, after_bytes=after_bytes, reset=reset)


def cut_answer(after_bytes: int | None = 0, *, reset: bool = False) -> Cut:
    """Returns an action that cuts an answer; see ``Cut``."""
    return Cut(direction=Direction.ANSWERS, after_bytes=after_bytes, reset=reset)


def hold_request() -> Hold:
    """Returns an action that holds a request; see ``Hold``."""
    return Hold(direction=Direction.REQUESTS)


def hold_answer() -> Hold:
    """Returns an action that holds an answer; see ``Hold``."""
    return Hold(direction=Direction.ANSWERS)


def watch_request() -> Watch:
    """Returns an action that notes a request; see ``Watch``."""
    return Watch(direction=Direction.REQUESTS)


def watch_answer() -> Watch:
    """Returns an action that notes an answer; see ``Watch``."""
    return Watch(direction=Direction.ANSWERS)


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """An action that is armed for the next frames of a kind. Made by ``Proxy.arm``.

    Attributes:
        name, action, where, node_id: see ``Proxy.arm``.
        frames: the frames that the fault has hit, in order.
        times: how many more frames may be hit; None: any number.
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
    """The proxy's record of evidence."""
    frames: list[Frame] = field(default_factory=list)
    held: "list[tuple[Link, Callable[[], None]]]" = field(default_factory=list)
    """(link, function that releases its frames) for each link with held frames."""
    _came: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)
    answer_seen: Frame | None = None
    delivered: bool = False
    """True once ``deliver`` has released the held frames."""

    def hits(self, frame: Frame) -> bool:
        """Returns True if the fault hits this frame, and counts the frame then. For the proxy's thread only."""
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
        """Notes evidence that the fault has struck, and wakes those who wait for it. For the proxy's thread only."""
        self.record.note(_SEEN[type(self.action)])
        self._came.set()

    def answered(self, answer: Frame) -> None:
        """Takes the broker's answer to the first request that was hit. For the proxy's thread only."""
        self.answer_seen = answer
        if self.delivered:
            self.record.note(LATE)
        self._answered.set()

    @property
    def came(self) -> bool:
        """True once the fault has struck."""
        return self._came.is_set()

    def wait(self, timeout_s: float = WAIT_S) -> Frame:
        """Waits until the fault has struck, and returns the first frame that it has hit.

        Raises:
            TimeoutError: the fault did not strike in time.
        """
        if not self._came.wait(timeout_s):
            raise TimeoutError(f"no {self.name} came in {timeout_s:.0f} s that {self.action} could happen to")
        return self.frames[0]

    def answer(self, timeout_s: float = WAIT_S) -> Any:
        """Waits for the broker's answer to the first request that was hit, and returns it decoded. The client may be
        dead by then.

        Raises:
            TimeoutError: no answer came in time.
        """
        if not self._answered.wait(timeout_s):
            raise TimeoutError(f"the broker did not answer the {self.name} in {timeout_s:.0f} s")
        assert self.answer_seen is not None
        return self.answer_seen.decode()

    def release(self) -> None:
        """Releases the held frames. For the proxy's thread only."""
        for _, let_go in self.held:
            let_go()
        self.held.clear()

    def deliver(self) -> None:
        """Delivers the held frames."""

        def release() -> None:
            assert self.held, "nothing is held"
            self.delivered = True
            self.release()

        self.call(release)

    def drop(self) -> None:
        """Drops the held frames, and breaks their connections."""

        def cut() -> None:
            assert self.held, "nothing is held"
            for link, _ in self.held:
                link.cut()
            self.held.clear()

        self.call(cut)

    def disarm(self) -> None:
        """Disarms the fault: it does not strike any more."""

        def never() -> None:
            self.times = 0

        self.call(never)
