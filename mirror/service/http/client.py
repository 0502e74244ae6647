"""The command line's client of the supervisor's HTTP server: fetches the status, pauses and resumes partitions, reloads
the configuration, traces a partition."""

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from mirror.net.options import address_text
from mirror.service.http.guard import GUARD
from mirror.service.resume.resumption import Resumed, ResumeOutcome
from mirror.service.telemetry.status import Status
from mirror.service.tracing.following import ENDED

TIMEOUT_S = 75.0
"""Longest wait for an answer to a request that resumes partitions: the mirror watches them for a while first."""
STATUS_TIMEOUT_S = 10.0
"""Longest wait for the status. A supervisor has it in memory: if it does not answer, it is stopped or stuck."""
SILENCE_S = 15.0
"""While a partition is traced, the mirror sends something every second; after this much silence it is stopped or
stuck."""
NOT_ALLOWED = (http.client.UNAUTHORIZED, http.client.FORBIDDEN, http.client.SERVICE_UNAVAILABLE)
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Address of a mirror that listens on every address -> the loopback address at which to reach it."""


class NotAnswered(Exception):
    """Nothing answers at the address, or what answers is not a mirror."""


class OtherFlow(NotAnswered):
    """A mirror answers at the address, but it runs another flow."""


class NotDone(Exception):
    """The supervisor did not do what was requested; the message says why."""


class Halted(NotDone):
    """The request was not done because the partition has halted."""


class NotAllowed(NotDone):
    """The supervisor does not accept the request from this machine, or without the right token."""


def fetch_status(address: tuple[str, int], *, flows: Mapping[str, str] | None = None, flow: str = "") -> Status:
    """Returns the status of the mirror that listens on an address.

    Args:
        address: host and port.
        flows: name -> id of flows; the mirror must run at least one of them. None: any mirror will do.
        flow: name of the flow whose status is returned; empty: all flows.

    Raises:
        NotAnswered: no mirror listens there, or it does not run that flow.
        OtherFlow: the mirror runs other flows.
    """
    code, body = _ask(
        address, "GET", "/api/v1/status" + (f"?flow={quote(flow, safe='')}" if flow else ""), timeout_s=STATUS_TIMEOUT_S
    )
    if isinstance(body, dict) and "error" in body:
        raise NotAnswered(f"the mirror at {_text(address)}: {body['error']}")
    if code != http.client.OK or not isinstance(body, dict):
        raise NotAnswered(f"{_text(address)} answers with {code}, and does not seem to be a mirror")
    running = {str(each["flow_id"]): str(each["flow"]) for each in body.get("flows", [])}
    if flows and running and not running.keys() & set(flows.values()):
        told = ", ".join(f"{name} (id {flow_id})" for flow_id, name in running.items())
        raise OtherFlow(
            f"the mirror at {_text(address)} runs flow {told}, and not {', '.join(flows.values())} as this "
            "configuration says; give each mirror an http.listen of its own, or --at HOST:PORT"
        )
    return body


def resume(
    address: tuple[str, int],
    topic: str | None = None,
    partition: int | None = None,
    *,
    accept: Iterable[str] = (),
    flows: Mapping[str, str] | None = None,
    flow: str = "",
    token: str = "",
) -> Resumed:
    """Resumes a halted or paused partition, all those of a topic, or all those of the flow.

    Args:
        address: host and port.
        topic: name of the topic; None: all topics.
        partition: number of the partition; None: all partitions.
        accept: see ``Resumption.resume``.
        flows: see ``fetch_status``.
        flow: see ``fetch_status``.
        token: the token of ``http.token``, if it is set.

    Raises:
        NotAnswered: no mirror listens there.
        OtherFlow: the mirror runs other flows.
        NotDone: the mirror asked no worker: there is no such partition, no worker is ready, or the token is wrong.
    """
    return _act("resume", address, topic, partition, accept=accept, flows=flows, flow=flow, token=token)


def pause(
    address: tuple[str, int],
    topic: str | None = None,
    partition: int | None = None,
    *,
    flows: Mapping[str, str] | None = None,
    flow: str = "",
    token: str = "",
) -> Resumed:
    """Pauses a partition, all those of a topic, or all those of the flow. Arguments and errors: as ``resume``."""
    return _act("pause", address, topic, partition, flows=flows, flow=flow, token=token)


def reload(
    address: tuple[str, int], *, flows: Mapping[str, str] | None = None, token: str = ""
) -> dict[str, list[str]] | None:
    """Makes the mirror read its configuration again. ``flows``, ``token``: see ``resume``.

    Returns:
        What has changed: under the keys added, removed, restarted, limited and untouched the names of flows, under
        need_restart keys of the configuration. None: the reload was not finished in time, and goes on.

    Raises:
        NotAnswered, OtherFlow: as ``fetch_status``.
        NotAllowed: the mirror does not accept this request from this machine, or without the right token.
        NotDone: the configuration is wrong; nothing was changed.
    """
    if flows:
        fetch_status(address, flows=flows)
    code, body = _ask(address, "POST", "/api/v1/reload", token=token)
    if isinstance(body, dict) and "error" in body:
        raise (NotAllowed if code in NOT_ALLOWED else NotDone)(str(body["error"]))
    if code == http.client.ACCEPTED:
        return None
    if code != http.client.OK or not isinstance(body, dict):
        raise NotAnswered(f"{_text(address)} answers with {code}, and does not seem to be a mirror that can reload")
    return body


def trace(
    address: tuple[str, int],
    topic: str,
    partition: int,
    *,
    seconds: int,
    wait: bool = False,
    flows: Mapping[str, str] | None = None,
    flow: str = "",
    token: str = "",
) -> Iterator[dict[str, Any]]:
    """Traces a partition for some seconds, and yields its steps as they happen.

    Args:
        address: host and port.
        topic: name of the topic.
        partition: number of the partition.
        seconds: how long.
        wait: True to begin even if the partition is halted, paused or not assigned to this mirror now.
        flows: see ``fetch_status``.
        flow: see ``fetch_status``.
        token: see ``resume``.

    Raises:
        NotAnswered: no mirror listens there, or it has ended meanwhile.
        OtherFlow: the mirror runs other flows.
        Halted: the partition has halted.
        NotDone: the partition is not copied here now; the message says why.
    """
    if flows:
        fetch_status(address, flows=flows)
    query = {"seconds": str(seconds)} | ({"wait": "true"} if wait else {}) | ({"flow": flow} if flow else {})
    path = f"/api/v1/partitions/{quote(topic, safe='')}/{partition}/trace?{urlencode(query)}"
    with _asking(address, "POST", path, timeout_s=SILENCE_S, token=token) as answer:
        if answer.status != http.client.OK:
            body = _read(answer)
            if not isinstance(body, dict) or "error" not in body:
                raise NotAnswered(f"{_text(address)} answers with {answer.status}: it is no mirror that can trace")
            raise (Halted if body.get("halted") else NotDone)(str(body["error"]))
        ended = False
        for line in answer:
            if line.strip():
                step = json.loads(line)
                ended = ended or step["step"] == ENDED
                yield step
        if not ended:
            raise NotAnswered(f"the mirror at {_text(address)} has stopped, and the trace with it")


def _act(
    verb: str,
    address: tuple[str, int],
    topic: str | None,
    partition: int | None,
    *,
    accept: Iterable[str] = (),
    flows: Mapping[str, str] | None,
    flow: str,
    token: str,
) -> Resumed:
    if flows:
        fetch_status(address, flows=flows)
    parts = [quote(topic, safe="")] if topic is not None else []
    parts += [str(partition)] if partition is not None else []
    query = "&".join([f"{name}=true" for name in accept] + ([f"flow={quote(flow, safe='')}"] if flow else []))
    _, body = _ask(address, "POST", "/".join(("/api/v1/partitions", *parts, f"{verb}?{query}")), token=token)
    if isinstance(body, dict) and "error" in body:
        raise NotDone(str(body["error"]))
    if not isinstance(body, dict) or "partitions" not in body:
        raise NotAnswered(f"{_text(address)} answers with something else, and does not seem to be a mirror")
    return Resumed(
        [ResumeOutcome(**each) for each in body["partitions"]],
        [(each["topic"], each["partition"]) for each in body["elsewhere"]],
        body["nobody"],
        tuple(
            (each["flow"], each["why"]) for each in body.get("unasked", ())
        ),  # earlier versions leave these flows out
    )


def _ask(
    address: tuple[str, int], method: str, path: str, *, timeout_s: float = TIMEOUT_S, token: str = ""
) -> tuple[int, Any]:
    with _asking(address, method, path, timeout_s=timeout_s, token=token) as answer:
        return answer.status, _read(answer)


def _read(answer: http.client.HTTPResponse) -> Any:
    """Reads and parses a whole answer; None if it is not JSON."""
    text = answer.read()
    try:
        return json.loads(text)
    except ValueError:
        return None


@contextmanager
def _asking(
    address: tuple[str, int], method: str, path: str, *, timeout_s: float, token: str
) -> Iterator[http.client.HTTPResponse]:
    """Sends a request, and yields its answer, whose body is not read yet. ``timeout_s``: longest wait of a single
    socket operation.

    Raises:
        NotAnswered: nothing answers, or the answer breaks off.
    """
    host, port = address
    if not port:
        at = _text((EVERYWHERE.get(host, host), 0)).removesuffix(":0")
        raise NotAnswered(
            f"http.listen is {_text(address)} in this configuration, so the mirror took a port that was free. Its log "
            f"names it in the line `listening` (address): add --at {at}:PORT to the command, or give http.listen a port"
        )
    connection = http.client.HTTPConnection(EVERYWHERE.get(host, host), port, timeout=timeout_s)
    try:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, headers={GUARD: "cli", **shown})
        yield connection.getresponse()
    except TimeoutError as error:
        raise NotAnswered(
            f"the mirror at {_text(address)} has not answered for {timeout_s:.0f} s: its supervisor is stopped, or "
            "stuck; copying may go on"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise NotAnswered(
            f"no mirror answers at {_text(address)}: {error}; start it (mirror start), on this machine and with this "
            "configuration (http.listen; if that was changed since it was started, give the former address with --at)"
        ) from error
    finally:
        connection.close()


def _text(address: tuple[str, int]) -> str:
    return address_text(*address)
