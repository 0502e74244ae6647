"""The command line's side of the supervisor's HTTP server: asks for the status, has partitions resumed."""

import http.client
import json
from typing import Any
from urllib.parse import quote

from mirror.service.http import GUARD
from mirror.service.status import Status

TIMEOUT_S = 75.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Who listens at every address is asked at the loopback one."""


class NotAnswered(Exception):
    """Nobody answers there, or not a mirror."""


class NotDone(Exception):
    """The supervisor says why not."""


def fetch_status(address: tuple[str, int]) -> Status:
    """The status of the mirror that listens there.

    Raises:
        NotAnswered: none does.
    """
    code, body = _ask(address, "GET", "/api/v1/status")
    if code != http.client.OK or not isinstance(body, dict):
        raise NotAnswered(f"{_text(address)} answers with {code}: no mirror, it seems")
    return body


def resume(address: tuple[str, int], topic: str, partition: int, *, accept_gap: bool) -> None:
    """Has a halted partition looked at anew.

    Raises:
        NotAnswered: no mirror listens there.
        NotDone: it is not halted, not there, or still has a reason to halt.
    """
    path = f"/api/v1/partitions/{quote(topic, safe='')}/{partition}/resume"
    code, body = _ask(address, "POST", path + ("?accept_gap=true" if accept_gap else ""))
    if code == http.client.OK:
        return
    if not isinstance(body, dict) or "error" not in body:
        raise NotAnswered(f"{_text(address)} answers with {code}: no mirror, it seems")
    raise NotDone(f"{topic}-{partition} is not resumed: {body['error']}")


def _ask(address: tuple[str, int], method: str, path: str) -> tuple[int, Any]:
    host, port = address
    connection = http.client.HTTPConnection(EVERYWHERE.get(host, host), port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers={GUARD: "cli"})
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise NotAnswered(
            f"no mirror answers at {_text(address)}: {error}; it must run on this machine with this configuration "
            "(http.listen)"
        ) from error
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, None


def _text(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
