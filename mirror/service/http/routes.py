"""The answers of the supervisor's HTTP server, path by path."""

import json
import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from mirror import DISTRIBUTION
from mirror.service.commands import Commands
from mirror.service.http.server import HTML, JSON, Request, Response
from mirror.service.resume.resumption import ACCEPTABLE, NotAsked, Resumption
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.readiness import remarks, unready
from mirror.service.telemetry.status import Status, as_html, late_workers, status


class Served(Protocol):
    """The supervisor, as far as the pages need it."""

    fleet: Fleet
    started: bool
    group: str
    """Name of the consumer group."""
    address: str
    """The host:port that the server listens on."""
    commands: Commands

    resumption: Resumption


class Pages:
    """Answers the requests for all paths."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._version = _version()

    async def answer(self, request: Request) -> Response:
        """Returns the answer to a request; called in the event loop."""
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
            case "POST", ("api", "v1", "partitions", "resume"):
                return await self._resume(None, None, request.query)
            case "POST", ("api", "v1", "partitions", topic, "resume"):
                return await self._resume(topic, None, request.query)
            case "POST", ("api", "v1", "partitions", topic, partition, "resume"):
                return await self._resume(topic, partition, request.query)
            case _:
                return Response(HTTPStatus.NOT_FOUND, b"/metrics, /status, /api/v1/status, /-/healthy, /-/ready\n")

    def status(self) -> Status:
        """Returns the status object that the pages show."""
        served = self._served
        return status(
            served.fleet,
            version=self._version,
            started=served.started,
            group=served.group,
            address=served.address,
            pid=os.getpid(),
            commands=served.commands,
        )

    def _metrics(self) -> Response:
        # Loaded at the first request, so that the start need not wait for it.
        from mirror.service.telemetry import metrics

        text = metrics.render(self._served.fleet, self._version, started=self._served.started)
        return Response(HTTPStatus.OK, text, metrics.CONTENT_TYPE)

    def _healthy(self) -> Response:
        """Tells whether all event loops run: the supervisor's, which answers this, and each worker's. Brokers do not
        matter."""
        late = late_workers(self._served.fleet, time.time())
        if late:
            text = f"not heard of: worker {', '.join(map(str, late))}\n"
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
        return Response(HTTPStatus.OK, b"healthy\n")

    def _ready(self) -> Response:
        """Tells whether the mirror does its work: a line for each reason why not, or else a line for each remark."""
        served = self._served
        reasons = [served.commands.rendered(each) for each in unready(served.fleet, started=served.started)]
        if reasons:
            if any(row.reason or row.waits for _, row in served.fleet.rows):
                reasons.append(served.commands.rendered("`mirror status` says more of each partition"))
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{each}\n" for each in reasons).encode())
        lines = ["ready", *remarks(served.fleet)]
        return Response(HTTPStatus.OK, "".join(f"{each}\n" for each in lines).encode())

    async def _resume(self, topic: str | None, partition: str | None, query: Mapping[str, str]) -> Response:
        """Resumes partitions. 200: all of them go on; 409: not all; 404: no worker was asked; 400: not understood."""
        if partition is not None and not partition.isdecimal():
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"{partition} is no partition"})
        accept = {name for name, value in query.items() if value == "true"}
        if accept - ACCEPTABLE:
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"unknown: {', '.join(sorted(accept - ACCEPTABLE))}"})
        try:
            found = await self._served.resumption.resume(
                topic, int(partition) if partition is not None else None, accept
            )
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
