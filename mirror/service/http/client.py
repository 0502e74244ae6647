"""The command line's client of the supervisor's HTTP server: fetches the status, has partitions paused and resumed."""

import http.client
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from mirror.net.options import address_text
from mirror.service.http.server import GUARD
from mirror.service.resume.resumption import Resumed, ResumeOutcome
from mirror.service.telemetry.status import Status

TIMEOUT_S = 75.0
"""Longest wait for the answer when partitions are resumed, which are watched for a while."""
STATUS_TIMEOUT_S = 10.0
"""Longest wait for the status, which a supervisor knows already: one that does not answer is stopped, or stuck."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""A mirror that listens on every address is asked at the loopback address."""


class NotAnswered(Exception):
    """Nothing answers at the address, or it is not a mirror."""


class OtherFlow(NotAnswered):
    """A mirror answers at the address, but it runs another flow."""


class NotDone(Exception):
    """The supervisor did not do it; the message says why."""


def fetch_status(address: tuple[str, int], *, flows: Mapping[str, str] | None = None, flow: str = "") -> Status:
    """Returns the status of the mirror that listens on an address.

    Args:
        address: host and port.
        flows: name -> id of the flows of which it must run at least one; None: any.
        flow: the name of the flow that is shown; empty: all of them.

    Raises:
        NotAnswered: no mirror listens there, or it does not run that flow.
        OtherFlow: it runs other flows.
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
) -> Resumed:
    """Has a halted or paused partition resumed, all of a topic, or all of the flow. ``accept``: see
    ``Resumption.resume``; ``flows``, ``flow``: see ``fetch_status``.

    Raises:
        NotAnswered: no mirror listens there.
        OtherFlow: it runs other flows.
        NotDone: it asked no worker, because there is no such partition, or no worker is ready.
    """
    return _act("resume", address, topic, partition, accept=accept, flows=flows, flow=flow)


def pause(
    address: tuple[str, int],
    topic: str | None = None,
    partition: int | None = None,
    *,
    flows: Mapping[str, str] | None = None,
    flow: str = "",
) -> Resumed:
    """Has a partition paused, all of a topic, or all of the flow. Arguments and errors: as ``resume``."""
    return _act("pause", address, topic, partition, flows=flows, flow=flow)


def reload(address: tuple[str, int], *, flows: Mapping[str, str] | None = None) -> dict[str, list[str]] | None:
    """Has the mirror read its configuration again. ``flows``: see ``fetch_status``.

    Returns:
        Names of flows: added, removed, restarted, limited, untouched; and need_restart: keys. None: it takes the
        configuration, and is not done with it yet.

    Raises:
        NotAnswered, OtherFlow: as ``fetch_status``.
        NotDone: the configuration is wrong; nothing was changed.
    """
    if flows:
        fetch_status(address, flows=flows)
    code, body = _ask(address, "POST", "/api/v1/reload")
    if isinstance(body, dict) and "error" in body:
        raise NotDone(str(body["error"]))
    if code == http.client.ACCEPTED:
        return None
    if code != http.client.OK or not isinstance(body, dict):
        raise NotAnswered(f"{_text(address)} answers with {code}, and does not seem to be a mirror that can reload")
    return body


def _act(
    verb: str,
    address: tuple[str, int],
    topic: str | None,
    partition: int | None,
    *,
    accept: Iterable[str] = (),
    flows: Mapping[str, str] | None,
    flow: str,
) -> Resumed:
    if flows:
        fetch_status(address, flows=flows)
    parts = [quote(topic, safe="")] if topic is not None else []
    parts += [str(partition)] if partition is not None else []
    query = "&".join([f"{name}=true" for name in accept] + ([f"flow={quote(flow, safe='')}"] if flow else []))
    _, body = _ask(address, "POST", "/".join(("/api/v1/partitions", *parts, f"{verb}?{query}")))
    if isinstance(body, dict) and "error" in body:
        raise NotDone(str(body["error"]))
    if not isinstance(body, dict) or "partitions" not in body:
        raise NotAnswered(f"{_text(address)} answers with something else, and does not seem to be a mirror")
    return Resumed(
        [ResumeOutcome(**each) for each in body["partitions"]],
        [(each["topic"], each["partition"]) for each in body["elsewhere"]],
        body["nobody"],
    )


def _ask(address: tuple[str, int], method: str, path: str, *, timeout_s: float = TIMEOUT_S) -> tuple[int, Any]:
    host, port = address
    if not port:
        at = _text((EVERYWHERE.get(host, host), 0)).removesuffix(":0")
        raise NotAnswered(
            f"http.listen is {_text(address)} in this configuration, so the mirror took a port that was free. Its log "
            f"names it in the line `listening` (address): add --at {at}:PORT to the command, or give http.listen a port"
        )
    connection = http.client.HTTPConnection(EVERYWHERE.get(host, host), port, timeout=timeout_s)
    try:
        connection.request(method, path, headers={GUARD: "cli"})
        answer = connection.getresponse()
        text = answer.read()
    except TimeoutError as error:
        raise NotAnswered(
            f"the mirror at {_text(address)} has not answered for {timeout_s:.0f} s: its supervisor is stopped, or "
            "stuck; copying may go on"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise NotAnswered(
            f"no mirror answers at {_text(address)}: {error}; it must run on this machine with this configuration "
            "(http.listen; if that was changed since it was started, give the former address with --at)"
        ) from error
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, None


def _text(address: tuple[str, int]) -> str:
    return address_text(*address)
