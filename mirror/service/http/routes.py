"""The routes of the supervisor's HTTP server (Starlette).

``/api/v1`` is described by ``openapi.json``, beside this file. A test checks that it has every route.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Protocol
from urllib.parse import unquote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mirror import DISTRIBUTION
from mirror.service.commands import Commands
from mirror.service.flows.flow import RunningFlow, protection
from mirror.service.flows.overview import Status, late_workers, not_ready, status, to_look_at
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.flows.reloading import UNCHANGED, NotRead, Reloading
from mirror.service.log import logs
from mirror.service.resume.resumption import ACCEPTABLE, NotAsked, Resumed, Resumption, act_on

RELOAD_S = 60.0
"""Longest wait for the end of a reload, which reads the file and drains the flows that it restarts."""
CHANGED = ("added", "removed", "restarted", "limited", "untouched", "need_restart")
"""The fields of ``service.flows.changes.Changes`` in the answer to a reload."""
JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
VERBS = ("pause", "resume")
LONGEST = 11
"""More digits than the number of a partition can have."""
_PARTS = ("topic", "partition")
"""Parameters in the path that may be left out."""


class Served(Protocol):
    """The parts of the supervisor that the routes need."""

    flows: dict[str, RunningFlow]
    processes: WorkerProcesses
    reloading: Reloading
    address: str
    """The host:port that the server listens on."""
    commands: Commands


class Pages:
    """Answers the requests for all paths: an ASGI application."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._version = _version()
        self.routes = [
            Route("/", self._page),
            Route("/metrics", self._metrics),
            Route("/status", self._table),
            Route("/-/healthy", self._healthy),
            Route("/-/ready", self._ready),
            Route("/api/v1/openapi.json", self._openapi),
            Route("/api/v1/status", self._json_status),
            Route("/api/v1/reload", self._reload, methods=["POST"]),
            Route("/api/v1/partitions/{topic}/{partition}/trace", self._trace, methods=["POST"]),
            *(
                Route(f"/api/v1/partitions{which}/{verb}", partial(self._act, verb), methods=["POST"])
                for which in ("", "/{topic}", "/{topic}/{partition}")
                for verb in VERBS
            ),
        ]
        self._app = Starlette(
            routes=self.routes, exception_handlers={HTTPException: self._not_there, Exception: self._failed}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request. The path is split before it is unquoted, so that names may have any characters. A slash at
        the end is ignored."""
        path = urlsplit(scope["raw_path"].decode("ascii")).path
        await self._app({**scope, "path": f"/{path.strip('/')}"}, receive, send)

    async def _not_there(self, request: Request, error: Exception) -> Response:
        """Answers a request for a path that does not exist, or with a method that the path does not have."""
        assert isinstance(error, HTTPException)
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
            return _error(request, HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed} here", {"Allow": allowed})
        known = ", ".join(each.path for each in self.routes if "GET" in (each.methods or ()))
        return _error(request, HTTPStatus.NOT_FOUND, f"there is no {unquote(request.url.path)} here, but {known}")

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Answers a request that failed because of a bug in the mirror. Nothing else is affected."""
        logs.get_logger().error("http_failed", detail=f"{request.method} {request.url.path}: {error!r}")
        return _error(request, HTTPStatus.INTERNAL_SERVER_ERROR, "the answer could not be made; the log has the error")

    async def _openapi(self, _: Request) -> Response:
        return _answer(HTTPStatus.OK, (files("mirror.service.http") / "openapi.json").read_bytes(), JSON)

    async def _reload(self, _: Request) -> Response:
        """Reads the configuration again. 200: done, with what has changed; 202: not finished within ``RELOAD_S``, and
        goes on; 409: the configuration is wrong, and nothing was changed."""
        try:
            changed = await asyncio.wait_for(self._served.reloading.reload(), RELOAD_S)
        except NotRead as error:
            return _json(HTTPStatus.CONFLICT, {"error": f"{error}; {UNCHANGED}"})
        except TimeoutError:
            return _json(HTTPStatus.ACCEPTED, {})
        return _json(HTTPStatus.OK, {name: getattr(changed, name) for name in CHANGED})

    async def _page(self, request: Request) -> Response:
        """Returns the status page: the most important things, kept up to date."""
        # Imported at the first request, like everything that is for people: many mirrors are only scraped.
        from mirror.service.http.page import document

        return self._about(request, lambda flows: _page(document.page(self._status(flows)), document.POLICY))

    async def _table(self, request: Request) -> Response:
        """Returns the whole status as tables, without scripts."""
        from mirror.service.telemetry.status import POLICY, as_html

        return self._about(request, lambda flows: _page(as_html(self._status(flows)), POLICY))

    async def _json_status(self, request: Request) -> Response:
        return self._about(request, lambda flows: _json(HTTPStatus.OK, self._status(flows)))

    async def _ready(self, request: Request) -> Response:
        return self._about(request, self._readiness)

    def _about(self, request: Request, answer: Callable[[list[RunningFlow]], Response]) -> Response:
        """Returns the answer about all flows, or with ``?flow=NAME`` about one. ``answer``: makes it from the flows."""
        try:
            return answer(self._chosen(request.query_params))
        except NotAsked as error:
            return _json(HTTPStatus.NOT_FOUND, {"error": str(error)})

    def _chosen(self, query: Mapping[str, str]) -> list[RunningFlow]:
        """Returns the flow that the query names, or all flows if it names none.

        Raises:
            NotAsked: there is no such flow.
        """
        flows, name = self._served.flows, query.get("flow")
        if not name:
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

    async def _metrics(self, _: Request) -> Response:
        # Imported at the first request, so that the start does not wait for it.
        from mirror.service.telemetry import metrics
        from mirror.service.telemetry.usage import files

        served = self._served
        await files.look_at(protection(served.flows.values()))
        flows = list(served.flows.values())
        text = metrics.render(
            flows, served.processes, self._version, reloads=served.reloading, clusters=protection(flows)
        )
        return _answer(HTTPStatus.OK, text, metrics.CONTENT_TYPE)

    async def _healthy(self, _: Request) -> Response:
        """Answers whether all event loops run: the supervisor's, which makes this answer, and each worker's. Brokers
        have no influence."""
        late = late_workers(self._served.processes.workers, time.time())
        if late:
            text = f"no report from worker {', '.join(map(str, late))}\n"
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return _text(HTTPStatus.OK, "healthy\n")

    def _readiness(self, flows: Sequence[RunningFlow]) -> Response:
        """Answers whether these flows do their work. There is a line for each reason why not, or else a line for each
        remark."""
        several = len(flows) > 1
        reasons = not_ready(flows, several=several)
        if reasons:
            if any(row.reason or row.waits for flow in flows for _, row in flow.fleet.rows):
                reasons.append(self._served.commands.rendered("`mirror status` shows each partition"))
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{each}\n" for each in reasons))
        lines = ["ready", *to_look_at(flows, several=several)]
        halted = sum(bool(row.reason) for flow in flows for _, row in flow.fleet.rows)
        if halted:
            said = "1 partition is halted" if halted == 1 else f"{halted} partitions are halted"
            lines.append(self._served.commands.rendered(f"{said}: `mirror status` says why, and what to do"))
        return _text(HTTPStatus.OK, "".join(f"{each}\n" for each in lines))

    async def _act(self, verb: str, request: Request) -> Response:
        """Pauses or resumes partitions. 200: all of them were; 409: not all were; 404: no worker was asked; 400: the
        request is malformed."""
        topic, partition = (unquote(path) if (path := request.path_params.get(name)) else None for name in _PARTS)
        query = request.query_params
        if partition is not None and not _is_number(partition):
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
        whole = all(not each.why_not for each in found.outcomes) and not found.unasked
        return _json(
            HTTPStatus.OK if whole else HTTPStatus.CONFLICT,
            {
                "partitions": [each._asdict() for each in found.outcomes],
                "elsewhere": [{"topic": topic, "partition": partition} for topic, partition in found.elsewhere],
                "nobody": found.nobody,
                "unasked": [{"flow": flow, "why": self._served.commands.rendered(why)} for flow, why in found.unasked],
            },
        )

    async def _trace(self, request: Request) -> Response:
        """Traces a partition for a while: one line of JSON for each step when it happens, and empty lines in between.
        404: there is no such partition; 409: the partition is not copied here now; 400: the request is malformed."""
        from mirror.service.tracing import following

        topic, partition = (unquote(request.path_params[name]) for name in _PARTS)
        query = request.query_params
        seconds = query.get("seconds", str(following.DEFAULT_S))
        if not _is_number(partition):
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"{partition} is not the number of a partition"})
        if not (_is_number(seconds) and 1 <= int(seconds) <= following.MOST_S):
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"seconds must be 1 to {following.MOST_S}, not {seconds}"})
        flows, number = {flow.name: flow for flow in self._served.flows.values()}, int(partition)
        try:
            chosen = {flow.name: flows[flow.name] for flow in self._chosen(query)}
            steps = await following.begin(chosen, topic, number, int(seconds), wait=query.get("wait") == "true")
        except NotAsked as error:
            return _json(HTTPStatus.NOT_FOUND, {"error": self._served.commands.rendered(str(error))})
        except following.NotTraced as error:
            told = self._served.commands.rendered(str(error), topic, number)
            return _json(HTTPStatus.CONFLICT, {"error": told, "halted": error.halted})
        lines = ("".join(f"{json.dumps(each)}\n" for each in some) or "\n" async for some in steps)
        return StreamingResponse(lines, headers={"Content-Type": "application/x-ndjson; charset=utf-8"})


def _is_number(text: str) -> bool:
    """Returns True if a text is a whole number of plausible size (fewer than ``LONGEST`` digits)."""
    return text.isascii() and text.isdecimal() and len(text) < LONGEST


def _answer(status: HTTPStatus, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, {"Content-Type": kind, **(headers or {})})


def _text(status: HTTPStatus, text: str) -> Response:
    return _answer(status, text.encode(), TEXT)


def _json(status: HTTPStatus, body: object) -> Response:
    return _answer(status, (json.dumps(body) + "\n").encode(), JSON)


def _page(text: str, policy: str) -> Response:
    return _answer(HTTPStatus.OK, text.encode(), HTML, {"Content-Security-Policy": policy})


def _error(request: Request, status: HTTPStatus, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an error response: JSON for paths of the API, text for others."""
    if request.url.path.startswith("/api/"):
        return _answer(status, (json.dumps({"error": why}) + "\n").encode(), JSON, headers)
    return _answer(status, f"{why}\n".encode(), TEXT, headers)


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
