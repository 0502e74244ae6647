"""A TCP proxy between the mirror and all brokers of one cluster. It fails on demand.

Kafka clients connect to the addresses that brokers advertise. So the brokers have a second listener
(``SandboxCluster(proxied=...)``), for which they advertise the proxy's ports: in Metadata, as coordinators, and as the
leaders in newer Fetch and Produce answers. The alternative, to rewrite all these addresses on the way, would mean to
decode and encode every kind of answer in every version. This way, the bytes that pass are the broker's own. Producers,
consumers and the audit use the first listener, and bypass the proxy.

The proxy has a thread with its own event loop. The public methods may be called from any other thread.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from lab.evidence import CONNECTIONS_CUT, HALF_CLOSED, RECONNECTED, Record
from lab.proxy.faults import WAIT_S, Action, Fault, Where
from lab.proxy.frames import SIZE, Direction, Frame, answer_frame
from lab.proxy.link import Link, Weather
from mirror.loop_thread import LoopThread
from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.ports import Reservation

BOTH = (Direction.REQUESTS, Direction.ANSWERS)
MIRROR_HOST = "127.0.0.2"
"""Source address for the proxy's connections to brokers (``Proxy(host=)``), by which brokers tell the mirror from other
clients. All of 127.0.0.0/8 is loopback."""
_BACKLOG = 128
_STREAM_LIMIT = 1 << 20

T = TypeVar("T")


class _Gate:
    """The proxy's listener for one broker."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.reservation = Reservation()
        self.upstream: int | None = None
        self.listening: socket.socket | None = None
        self.accepting: asyncio.Task[None] | None = None
        self.weather = {direction: Weather() for direction in Direction}


class Proxy:
    """The proxy of one cluster; see the module's docstring. A context manager: enter it before the cluster starts, then
    ``attach`` the cluster.

    Args:
        brokers: number of brokers. Their node ids are 1, 2, and so on.
        host: source address of the proxy's connections to the brokers.

    Attributes:
        ports: the proxy's ports at 127.0.0.1, in the order of the node ids, for ``SandboxCluster(proxied=...)``.
        seen: (direction, Kafka's name of the request) -> number of frames that were delivered.
        made: number of connections that were made so far.
        record: evidence of what the proxy has done to frames and connections.
        errors: errors of the proxy itself: bytes that are not Kafka's protocol, bugs. The first one is raised on exit.
    """

    def __init__(self, brokers: int = 1, *, host: str = "127.0.0.1") -> None:
        self._host = host
        self._gates = {node_id: _Gate(node_id) for node_id in range(1, brokers + 1)}
        self.record = Record()
        self._links: dict[int, Link] = {}
        self._faults: list[Fault] = []
        self.made = 0
        self._thread = LoopThread("fault proxy", timeout_s=WAIT_S)
        self._loop = self._thread.loop
        self.seen: Counter[tuple[Direction, str]] = Counter()
        self.errors: list[BaseException] = []

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(gate.reservation.port for gate in self._gates.values())

    @property
    def bootstrap_servers(self) -> str:
        """``bootstrap.servers`` for a mirror that goes through the proxy."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self.errors and error is None:
            raise self.errors[0]

    def attach(self, cluster: SandboxCluster) -> None:
        """Connects the ports to the proxied listeners of a cluster that has started."""
        upstream = [broker.proxied_port for broker in cluster.brokers]
        assert len(upstream) == len(self._gates), "a proxy for another number of brokers"
        assert None not in upstream, "the cluster was not started with proxied=proxy.ports"
        self.attach_ports([port for port in upstream if port is not None])

    def attach_ports(self, upstream: Iterable[int]) -> None:
        """Connects the proxy's ports to whatever listens on the ports ``upstream`` of 127.0.0.1."""

        def attach() -> None:
            for gate, port in zip(self._gates.values(), upstream, strict=True):
                gate.upstream = port
                self._listen(gate)

        self.call(attach)

    def close(self) -> None:
        """Ends all connections and the proxy's thread. May be called twice."""
        for gate in self._gates.values():
            gate.reservation.release()
        if not self._thread.runs():
            return
        self._thread.run(self._close())
        self._thread.stop()

    async def _close(self) -> None:
        for gate in self._gates.values():
            self._deafen(gate)
        links = list(self._links.values())
        for link in links:
            link.cut(reset=True)
        for link in links:
            await link.ended()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    # -- faults that wait for a frame --------------------------------------------------------------------------------

    def arm(
        self, name: str, action: Action, *, where: Where | None = None, node_id: int | None = None,
        times: int | None = 1, skip: int = 0,
    ) -> Fault:  # fmt: skip
        """Arms an action for the next requests of a kind, or for their answers, as the action says.

        Args:
            name: Kafka's name of the request: "Produce", "ListOffsets", "WriteTxnMarkers", ...
            action: what happens to the frame.
            where: returns True for frames that match; None: all match.
            node_id: node id of the broker; None: any broker.
            times: how many matching frames are hit in a row; None: all, until the fault is disarmed.
            skip: how many matching frames pass unharmed before.

        Returns:
            The fault, with which the caller waits until it has struck.
        """
        fault = Fault(
            name=name, action=action, where=where, node_id=node_id, times=times, skip=skip, call=self.call,
            record=self.record,
        )  # fmt: skip
        self.call(lambda: self._faults.append(fault))
        return fault

    def replay(self, frame: Frame, *, timeout_s: float = WAIT_S) -> Any:
        """Sends a request once more, as if the bytes of a dead client arrived late: on a separate connection, and
        without any faults.

        Returns:
            The broker's answer, decoded.
        """
        return answer_frame(self._thread.run(self._replay(frame), timeout_s), frame).decode()

    async def _replay(self, frame: Frame) -> bytes:
        reader, writer = await self._upstream(self._gates[frame.node_id])
        try:
            writer.write(frame.data)
            head = await reader.readexactly(SIZE.size)
            return head + await reader.readexactly(SIZE.unpack(head)[0])
        finally:
            writer.close()

    # -- weather -----------------------------------------------------------------------------------------------------

    def delay(self, seconds: float, directions: Iterable[Direction] = BOTH, *, node_id: int | None = None) -> None:
        """Delivers every frame later by some seconds. With both directions, a round trip takes twice that long. Only
        latency is added: any number of frames may be under way at the same time."""
        self._change(directions, node_id, lambda weather: setattr(weather, "delay_s", seconds))

    def stall(self, directions: Iterable[Direction] = BOTH, *, node_id: int | None = None) -> None:
        """Delivers nothing until ``clear``. Frames that are sent are kept, and connections stay open."""
        self._change(directions, node_id, lambda weather: setattr(weather, "stalled", True))

    def slow(
        self, bytes_per_s: float, directions: Iterable[Direction] = BOTH, *, node_id: int | None = None
    ) -> None:  # fmt: skip
        """Limits each connection, in each of the directions, to a rate."""
        self._change(directions, node_id, lambda weather: setattr(weather, "bytes_per_s", bytes_per_s))

    def cut_after(self, size: int, directions: Iterable[Direction], *, node_id: int | None = None) -> None:
        """Breaks each present and later connection once ``size`` more bytes have passed in one of the directions."""
        self._change(directions, node_id, lambda weather: setattr(weather, "cut_after", size))

    def clear(self) -> None:
        """Ends all failures: nothing is delayed, stalled or slow, new connections are accepted, and no fault is armed.
        Frames that a fault holds are delivered."""

        def clear() -> None:
            for gate in self._gates.values():
                gate.weather = {direction: Weather() for direction in Direction}
                if gate.upstream is not None:
                    self._listen(gate)
            for link in self._links.values():
                for pipe in (link.requests, link.answers):
                    pipe.weather = Weather()
                    pipe.poke()
            for fault in self._faults:
                fault.times = 0
                fault.release()
            self._faults.clear()

        self.call(clear)

    def _change(
        self, directions: Iterable[Direction], node_id: int | None, change: Callable[[Weather], None]
    ) -> None:  # fmt: skip
        wanted = tuple(directions)

        def apply() -> None:
            for gate in self._chosen(node_id):
                for direction in wanted:
                    change(gate.weather[direction])
            for link in self._links.values():
                if node_id in (None, link.node_id):
                    link.change(wanted, change)

        self.call(apply)

    # -- at once -----------------------------------------------------------------------------------------------------

    def cut(self, *, node_id: int | None = None, link: int | None = None, reset: bool = False) -> int:
        """Breaks present connections, and drops the frames that they keep. Returns the number of connections.

        Args:
            node_id: node id of the broker; None: all brokers.
            link: number of the only connection; None: all connections.
            reset: True to break them by RST instead of FIN.
        """

        def cut() -> int:
            chosen = [
                each
                for each in self._links.values()
                if node_id in (None, each.node_id) and link in (None, each.number)
            ]  # fmt: skip
            for each in chosen:
                each.cut(reset=reset)
            self.record.note(CONNECTIONS_CUT, len(chosen))
            return len(chosen)

        return self.call(cut)

    def half_close(self, direction: Direction, *, node_id: int | None = None) -> None:
        """Lets the receivers of this direction read end-of-file on all present connections. The other direction goes
        on."""

        def half() -> None:
            for link in self._links.values():
                if node_id in (None, link.node_id):
                    link.half_close(direction)
                    self.record.note(HALF_CLOSED)

        self.call(half)

    def refuse(self, *, node_id: int | None = None) -> None:
        """Refuses new connections until ``accept``. Present connections stay."""

        def refuse() -> None:
            for gate in self._chosen(node_id):
                self._deafen(gate)

        self.call(refuse)

    def accept(self, *, node_id: int | None = None) -> None:
        """Accepts new connections again."""

        def accept() -> None:
            for gate in self._chosen(node_id):
                self._listen(gate)

        self.call(accept)

    @property
    def links(self) -> int:
        """Number of present connections."""
        return len(self._links)

    # -- in the proxy's thread -----------------------------------------------------------------------------------------

    def strikes(self, frame: Frame) -> Fault | None:
        """Returns the fault that hits this frame, and counts it; None if there is none."""
        return next((fault for fault in self._faults if fault.hits(frame)), None)

    def saw(self, frame: Frame) -> None:
        """Counts a frame that is being delivered."""
        self.seen[frame.direction, frame.name] += 1

    def broken(self, error: BaseException) -> None:
        """Notes an error of the proxy itself: bytes that are not Kafka's protocol, or a bug."""
        self.errors.append(error)

    def gone(self, link: Link) -> None:
        """Forgets a connection that has ended."""
        self._links.pop(link.number, None)

    def _chosen(self, node_id: int | None) -> list[_Gate]:
        return list(self._gates.values()) if node_id is None else [self._gates[node_id]]

    def _listen(self, gate: _Gate) -> None:
        if gate.listening is not None:
            return
        gate.listening = socket.socket()
        gate.listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        gate.listening.bind(("127.0.0.1", gate.reservation.port))
        gate.listening.listen(_BACKLOG)
        gate.listening.setblocking(False)
        gate.accepting = self._loop.create_task(self._accept(gate, gate.listening))

    def _deafen(self, gate: _Gate) -> None:
        if gate.listening is None:
            return
        assert gate.accepting is not None
        gate.accepting.cancel()
        self._loop.remove_reader(gate.listening)
        gate.listening.close()
        gate.listening = None

    async def _accept(self, gate: _Gate, listening: socket.socket) -> None:
        while True:
            sock, _ = await self._loop.sock_accept(listening)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._join(gate, sock)

    async def _join(self, gate: _Gate, sock: socket.socket) -> None:
        """Connects a new client to the broker. If the broker is down, the client's connection is aborted."""
        client = await asyncio.open_connection(sock=sock, limit=_STREAM_LIMIT)
        try:
            broker = await self._upstream(gate)
        except OSError:
            client[1].transport.abort()
            return
        except asyncio.CancelledError:
            # The proxy is closing. It does not have this connection in its list yet, so nobody else would abort it.
            client[1].transport.abort()
            raise
        self.made += 1
        self.record.note(RECONNECTED)
        link = self._links[self.made] = Link(self, self.made, gate.node_id, client, broker, gate.weather)
        link.start()

    async def _upstream(self, gate: _Gate) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert gate.upstream is not None
        return await asyncio.open_connection(
            "127.0.0.1", gate.upstream, limit=_STREAM_LIMIT, local_addr=(self._host, 0)
        )

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function in the proxy's thread, and returns its result."""
        return self._thread.call(function)
