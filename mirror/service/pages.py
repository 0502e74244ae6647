"""What the supervisor's HTTP server answers, path by path."""

import json
import os
import time
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from mirror.service.fleet import Fleet
from mirror.service.http import HTML, JSON, Request, Response
from mirror.service.readiness import unready
from mirror.service.status import Status, as_html, late_workers, status

NOT_HERE = "no worker here has that partition"


class Served(Protocol):
    """The supervisor, as the pages need it."""

    fleet: Fleet
    started: bool
    group: str
    """Name of the consumer group."""
    address: str
    """Where the server listens."""

    async def resume(self, topic: str, partition: int, *, accept_gap: bool) -> str | None:
        """Why a partition is not resumed; empty: it is; None: it is not here."""


class Pages:
    """All paths."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._version = _version()

    async def answer(self, request: Request) -> Response:
        """In the event loop."""
        match request.method, request.path:
            case "GET", ("metrics",):
                return self._metrics()
            case "GET", ("-", "healthy"):
                return self._healthy()
            case "GET", ("-", "ready"):
                return self._ready()
            case "GET", ("api", "v1", "status"):
                return _json(HTTPStatus.OK, self.status())
            case "GET", ("status",) | ("",):
                return Response(HTTPStatus.OK, as_html(self.status()).encode(), HTML)
            case "POST", ("api", "v1", "partitions", topic, partition, "resume"):
                return await self._resume(topic, partition, accept_gap=request.query.get("accept_gap") == "true")
            case _:
                return Response(HTTPStatus.NOT_FOUND, b"/metrics, /status, /api/v1/status, /-/healthy, /-/ready\n")

    def status(self) -> Status:
        """The object that is shown."""
        served = self._served
        return status(
            served.fleet,
            version=self._version,
            started=served.started,
            group=served.group,
            address=served.address,
            pid=os.getpid(),
        )

    def _metrics(self) -> Response:
        # Loaded when somebody asks: the start need not wait for it.
        from mirror.service import metrics

        text = metrics.render(self._served.fleet, self._version)
        return Response(HTTPStatus.OK, text, metrics.CONTENT_TYPE)

    def _healthy(self) -> Response:
        """The event loops of the supervisor, which answers this, and of every worker. Brokers do not matter."""
        late = late_workers(self._served.fleet, time.time())
        if late:
            text = f"not heard of: worker {', '.join(map(str, late))}\n"
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
        return Response(HTTPStatus.OK, b"healthy\n")

    def _ready(self) -> Response:
        """Whether it does its work; each reason why not is a line."""
        reasons = unready(self._served.fleet, started=self._served.started)
        if reasons:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{each}\n" for each in reasons).encode())
        return Response(HTTPStatus.OK, b"ready\n")

    async def _resume(self, topic: str, partition: str, *, accept_gap: bool) -> Response:
        if not partition.isdecimal():
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"{partition} is no partition"})
        why_not = await self._served.resume(topic, int(partition), accept_gap=accept_gap)
        if why_not is None:
            return _json(HTTPStatus.NOT_FOUND, {"error": NOT_HERE})
        if why_not:
            return _json(HTTPStatus.CONFLICT, {"error": why_not})
        return _json(HTTPStatus.OK, {"resumed": f"{topic}-{partition}"})


def _json(status: HTTPStatus, body: object) -> Response:
    return Response(status, (json.dumps(body) + "\n").encode(), JSON)


def _version() -> str:
    try:
        return version("mirror")
    except PackageNotFoundError:
        return "unknown"
