"""The answers of the supervisor's HTTP server, path by path."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from mirror import DISTRIBUTION
from mirror.net.security.options import SecurityOptions
from mirror.service.commands import Commands
from mirror.service.flows.flow import RunningFlow
from mirror.service.flows.overview import Status, late_workers, not_ready, status, to_look_at
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.flows.reloading import UNCHANGED, NotRead, Reloading
from mirror.service.http.server import HTML, JSON, HttpRequest, Response
from mirror.service.resume.resumption import ACCEPTABLE, NotAsked, Resumed, Resumption, act_on
from mirror.service.telemetry.status import as_html

RELOAD_S = 60.0
"""Longest wait for the end of a reload, which drains the flows that it restarts."""
CHANGED = ("added", "removed", "restarted", "limited", "untouched", "need_restart")
"""What is told of a reload (``service.flows.changes.Changes``)."""


class Served(Protocol):
    """The supervisor, as far as the pages need it."""

    flows: dict[str, RunningFlow]
    processes: WorkerProcesses
    reloading: Reloading
    address: str
    """The host:port that the server listens on."""
    commands: Commands


class Pages:
    """Answers the requests for all paths."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._version = _version()

    async def answer(self, request: HttpRequest) -> Response:
        """Returns the answer to a request; called in the event loop."""
        match request.method, request.path:
            case "GET", ("metrics",):
                return self._metrics()
            case "GET", ("-", "healthy"):
                return self._healthy()
            case "GET", ("-", "ready") | ("api", "v1", "status") | ("status",) | ("",):
                return self._about(request)
            case "POST", ("api", "v1", "reload"):
                return await self._reload()
            case "POST", ("api", "v1", "partitions", "pause" | "resume" as verb):
                return await self._act(verb, None, None, request.query)
            case "POST", ("api", "v1", "partitions", topic, "pause" | "resume" as verb):
                return await self._act(verb, topic, None, request.query)
            case "POST", ("api", "v1", "partitions", topic, partition, "pause" | "resume" as verb):
                return await self._act(verb, topic, partition, request.query)
            case _:
                return Response(HTTPStatus.NOT_FOUND, b"/metrics, /status, /api/v1/status, /-/healthy, /-/ready\n")

    async def _reload(self) -> Response:
        """Has the configuration read again. 200: done, with what has changed; 202: under way, flows still drain; 409:
        it is wrong, and nothing was changed."""
        try:
            changed = await asyncio.wait_for(self._served.reloading.reload(), RELOAD_S)
        except NotRead as error:
            return _json(HTTPStatus.CONFLICT, {"error": f"{error}; {UNCHANGED}"})
        except TimeoutError:
            return _json(HTTPStatus.ACCEPTED, {})
        return _json(HTTPStatus.OK, {name: getattr(changed, name) for name in CHANGED})

    def _about(self, request: HttpRequest) -> Response:
        """Returns a page about all flows, or with ``?flow=NAME`` about one."""
        try:
            flows = self._chosen(request.query)
        except NotAsked as error:
            return _json(HTTPStatus.NOT_FOUND, {"error": str(error)})
        match request.path:
            case ("-", "ready"):
                return self._ready(flows)
            case ("api", "v1", "status"):
                return _json(HTTPStatus.OK, self._status(flows))
            case _:
                return Response(HTTPStatus.OK, as_html(self._status(flows)).encode(), HTML)

    def _chosen(self, query: Mapping[str, str]) -> list[RunningFlow]:
        """Returns the flow that the query names, or all.

        Raises:
            NotAsked: there is no such flow.
        """
        flows, name = self._served.flows, query.get("flow")
        if name is None:
            return list(flows.values())
        if name not in flows:
            running = ", ".join(flows)
            raise NotAsked(
                f"this mirror runs no flow {name}, but {running}; SIGHUP has it read its configuration again"
            )
        return [flows[name]]

    def _status(self, flows: Sequence[RunningFlow]) -> Status:
        """Returns the status object that the pages show."""
        served = self._served
        return status(flows, served.processes.workers, version=self._version, address=served.address, pid=os.getpid())

    def _metrics(self) -> Response:
        # Loaded at the first request, so that the start need not wait for it.
        from mirror.service.telemetry import metrics

        served = self._served
        flows = list(served.flows.values())
        text = metrics.render(
            flows, served.processes, self._version, reloads=served.reloading, clusters=_protected(flows)
        )
        return Response(HTTPStatus.OK, text, metrics.CONTENT_TYPE)

    def _healthy(self) -> Response:
        """Tells whether all event loops run: the supervisor's, which answers this, and each worker's. Brokers do not
        matter."""
        late = late_workers(self._served.processes.workers, time.time())
        if late:
            text = f"no report from worker {', '.join(map(str, late))}\n"
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
        return Response(HTTPStatus.OK, b"healthy\n")

    def _ready(self, flows: Sequence[RunningFlow]) -> Response:
        """Tells whether these flows do their work: a line for each reason why not, or else a line for each remark."""
        several = len(flows) > 1
        reasons = not_ready(flows, several=several)
        if reasons:
            if any(row.reason or row.waits for flow in flows for _, row in flow.fleet.rows):
                reasons.append(self._served.commands.rendered("`mirror status` shows each partition"))
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{each}\n" for each in reasons).encode())
        lines = ["ready", *to_look_at(flows, several=several)]
        halted = sum(bool(row.reason) for flow in flows for _, row in flow.fleet.rows)
        if halted:
            said = "1 partition is halted" if halted == 1 else f"{halted} partitions are halted"
            lines.append(self._served.commands.rendered(f"{said}: `mirror status` says why, and what to do"))
        return Response(HTTPStatus.OK, "".join(f"{each}\n" for each in lines).encode())

    async def _act(self, verb: str, topic: str | None, partition: str | None, query: Mapping[str, str]) -> Response:
        """Pauses or resumes partitions. 200: all of them; 409: not all; 404: no worker was asked; 400: not
        understood."""
        if partition is not None and not partition.isdecimal():
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"{partition} is not the number of a partition"})
        accept = {name for name, value in query.items() if value == "true" and name != "flow"}
        strange = accept - (ACCEPTABLE if verb == "resume" else set())
        if strange:
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"unknown: {', '.join(sorted(strange))}"})
        number = int(partition) if partition is not None else None

        def act(flow: Resumption) -> Awaitable[Resumed]:
            return flow.resume(topic, number, accept) if verb == "resume" else flow.pause(topic, number)

        try:
            found = await act_on({flow.name: flow.resumption for flow in self._chosen(query)}, topic, act)
        except NotAsked as error:
            return _json(HTTPStatus.NOT_FOUND, {"error": self._served.commands.rendered(str(error))})
        whole = all(not each.why_not for each in found.outcomes)
        return _json(
            HTTPStatus.OK if whole else HTTPStatus.CONFLICT,
            {
                "partitions": [each._asdict() for each in found.outcomes],
                "elsewhere": [{"topic": topic, "partition": partition} for topic, partition in found.elsewhere],
                "nobody": found.nobody,
            },
        )


def _json(status: HTTPStatus, body: object) -> Response:
    return Response(status, (json.dumps(body) + "\n").encode(), JSON)


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def _protected(flows: Sequence[RunningFlow]) -> dict[str, SecurityOptions]:
    """Returns how the connections to each cluster are protected."""
    found: dict[str, SecurityOptions] = {}
    for flow in flows:
        here, _, there = flow.name.partition("->")
        found[here] = flow.told.source.connection.security
        found[there] = flow.told.destination.connection.security
    return found
