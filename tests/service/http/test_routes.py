"""The paths of the supervisor's HTTP server, and the document that describes those of /api/v1."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.routing import Route

from mirror.net.security.options import Secret
from mirror.relay.stats import GivenUp
from mirror.service.commands import Commands
from mirror.service.flows import changes
from mirror.service.http import routes
from mirror.service.http.guard import GUARD, Guard
from mirror.service.http.routes import CHANGED, VERBS, Pages
from mirror.service.log import logs
from mirror.service.resume.resumption import Resumed, ResumeOutcome
from tests.service.flows.test_flow import Lines
from tests.service.flows.test_overview import active, two
from tests.service.http.asking import Answer, asked
from tests.service.telemetry.stage.rows import row

HALTED = row("u", 3, state="halted", reason="corrupt", detail="d", remedy="See to it.", lag_records=None)
WAITS = row("u", 4, state="locating", waits="no leader", waits_since=1.5, committed=-1, position=-1, source_end=-1)
PAUSED = row("u", 5, state="paused")


class Asked:
    """A flow's resumption that remembers what it was asked for."""

    def __init__(self, found: Resumed) -> None:
        self.found = found
        self.asked: list[tuple[Any, ...]] = []

    async def pause(self, *of: Any) -> Resumed:
        self.asked.append(("pause", *of))
        return self.found

    async def resume(self, *of: Any) -> Resumed:
        self.asked.append(("resume", *of))
        return self.found


def served(*, found: Resumed | None = None) -> Any:
    """A supervisor with two flows, of which one has of everything."""
    flows, processes = two([active(5, 100), HALTED, WAITS, PAUSED], [active(7, 50)])
    fleet = flows[0].fleet
    fleet.workers[1].skipped.append(GivenUp("t", 0, 1, 4, "gap", 1_700_000_000_000))
    for flow in flows:
        flow.name = flow.fleet.flow
        flow.resumption = Asked(found or Resumed([ResumeOutcome("t", 0, "")], [("t", 1)]))
    return SimpleNamespace(
        flows={flow.fleet.flow: flow for flow in flows}, processes=processes, address="127.0.0.1:1",
        commands=Commands(), reloading=SimpleNamespace(successful=True, succeeded_at=0.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("/", "text/html", "<h2>Flows</h2>"),
        ("/status", "text/html", "<h2>partitions</h2>"),
        ("/status/", "text/html", "<h2>partitions</h2>"),
        ("/-/healthy", "text/plain", "healthy"),
        ("/-/ready", "text/plain", "ready"),
        ("/-/ready?flow=west-%3Ehub", "text/plain", "ready"),
        ("/api/v1/status", "application/json", '"partitions": ['),
        ("/api/v1/status?flow=", "application/json", '"west->hub"'),
        ("http://127.0.0.1:1/api/v1/status", "application/json", '"partitions": ['),
        ("/api/v1/openapi.json", "application/json", '"openapi"'),
    ],
)
async def test_what_is_there(path: str, kind: str, said: str) -> None:
    answer = await asked(Pages(served()), "GET", path)
    assert (answer.status, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
    assert said in answer.body.decode()


@pytest.mark.parametrize(
    ("method", "path", "code", "said"),
    [
        ("GET", "/nothing", 404, "there is no /nothing here, but /, /metrics, "),
        ("GET", "/%3Cscript%3E", 404, "there is no /<script> here"),
        ("GET", "/api/v1/nothing", 404, '{"error": "there is no /api/v1/nothing here'),
        ("GET", "/api/v1/status?flow=x", 404, '"error": "this mirror runs no flow x, but west->east, west->hub'),
        ("GET", "/?flow=x", 404, "runs no flow x"),
        ("POST", "/api/v1/partitions/resume?flow=x", 404, "runs no flow x"),
        ("POST", "/api/v1/partitions/t/1x/resume", 400, "1x is not the number of a partition"),
        ("POST", f"/api/v1/partitions/t/{'9' * 5_000}/resume", 400, "is not the number of a partition"),
        ("POST", "/api/v1/partitions/t/pause?accept_gap=true", 400, "unknown: accept_gap"),
        ("GET", "/api/v1/reload", 405, '{"error": "use POST here"}'),
        ("GET", "/api/v1/partitions/t/1/pause", 405, "use POST here"),
        ("POST", "/metrics", 405, "use GET, HEAD here"),
        ("DELETE", "/api/v1/status", 405, "use GET, HEAD here"),
        ("OPTIONS", "/api/v1/reload", 405, "use POST here"),
    ],
)
async def test_what_is_not_there(method: str, path: str, code: int, said: str) -> None:
    """A preflight (OPTIONS) is answered as any other method: no web page of another site may go on."""
    answer = await asked(Pages(served()), method, path)
    assert answer.status == code
    assert said in answer.body.decode()
    assert answer.headers.get("allow") == (said.partition("use ")[2].partition(" here")[0] if code == 405 else None)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert not answer.headers["content-type"].startswith("text/html")


async def test_names_may_hold_anything() -> None:
    """Paths are taken apart before they are unquoted."""
    supervisor = served()
    await asked(Pages(supervisor), "POST", "/api/v1/partitions/a%2Fb%3F%25/7/pause?flow=west-%3Eeast")
    assert supervisor.flows["west->east"].resumption.asked == [("pause", "a/b?%", 7)]


async def test_a_mistake_in_the_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer is lost, and the log says which."""

    def status(*_: object, **__: object) -> None:
        raise KeyError("forgotten")

    monkeypatch.setattr(routes, "status", status)
    lines = Lines()
    monkeypatch.setattr(logs, "get_logger", lambda: lines)
    with pytest.raises(KeyError):  # which uvicorn takes, once the answer is sent
        await asked(Pages(served()), "GET", "/api/v1/status")
    (line,) = lines.lines
    assert (line.level, line.event) == ("error", "http_failed")
    assert line.fields == {"detail": "GET /api/v1/status: KeyError('forgotten')"}


# -- the document ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(Path(routes.__file__).with_name("openapi.json").read_bytes())


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def api(pages: Pages) -> set[tuple[str, str]]:
    """Method and path of each route of /api/v1."""
    return {
        (method, each.path)
        for each in pages.routes
        if isinstance(each, Route) and each.path.startswith("/api/")
        for method in (each.methods or set()) - {"HEAD"}
    }


def test_the_document_is_valid(document: Any) -> None:
    validate(document)


def test_each_route_is_described(document: Any) -> None:
    assert {(method, path) for method, path, _ in operations(document)} == api(Pages(served()))


def test_what_changes_something_needs_rights(document: Any) -> None:
    for method, path, operation in operations(document):
        assert (method != "GET") == ("security" in operation), path
    schemes = document["components"]["securitySchemes"]
    assert schemes["sameMachine"]["name"] == GUARD
    assert schemes["token"]["scheme"] == "bearer"


def closed(schema: Any) -> Any:
    """The schema without room for what it does not name: what is answered has to be described."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    return found | ({"additionalProperties": False} if "properties" in found and "type" in found else {})


def check(document: Any, method: str, path: str, answer: Answer) -> None:
    """The answer is one that the document has for this operation."""
    operation = document["paths"][path][method.lower()]
    response = operation["responses"][str(answer.status)]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"]["application/json"]["schema"]
    Draft202012Validator(closed({**schema, "components": document["components"]})).validate(answer.data)


ANSWERED = (("?flow=west-%3Eeast", 200), ("?flow=west-%3Ehub", 409), ("?flow=x", 404), ("?x=true", 400))
"""Queries, and how they are answered."""
SOME_NOT = Resumed([ResumeOutcome("t", 0, ""), ResumeOutcome("t", 1, "not yet", "west->hub")], [("t", 2)], nobody=True)


@pytest.mark.parametrize(
    ("method", "target", "path", "code"),
    [
        ("GET", "/api/v1/status", "/api/v1/status", 200),
        ("GET", "/api/v1/status?flow=west-%3Ehub", "/api/v1/status", 200),
        ("GET", "/api/v1/status?flow=x", "/api/v1/status", 404),
        ("GET", "/api/v1/openapi.json", "/api/v1/openapi.json", 200),
        *(
            (
                "POST", f"/api/v1/partitions{which}/{verb}{query}",
                f"/api/v1/partitions{which.replace('/t', '/{topic}').replace('/0', '/{partition}')}/{verb}", code,
            )
            for which in ("", "/t", "/t/0")
            for verb in VERBS
            for query, code in ANSWERED
        ),
    ],
)  # fmt: skip
async def test_answers_are_as_described(document: Any, method: str, target: str, path: str, code: int) -> None:
    supervisor = served()
    supervisor.flows["west->hub"].resumption.found = SOME_NOT
    answer = await asked(Pages(supervisor), method, target)
    assert answer.status == code
    check(document, method, path, answer)


@pytest.mark.parametrize(("token", "headers", "code"), [("t", {}, 401), ("", {}, 403)])
async def test_refusals_are_as_described(document: Any, token: str, headers: dict[str, str], code: int) -> None:
    guard = Guard(Pages(served()), host="127.0.0.1", token=lambda: Secret(token))
    for method, path in api(Pages(served())):
        if method != "GET":
            answer = await asked(guard, method, path, headers)
            assert answer.status == code
            check(document, method, path, answer)


def test_changes_are_as_described(document: Any) -> None:
    """Of a reload; the rest of its answers is in ``tests/service/flows/test_reloading.py``."""
    described = document["components"]["schemas"]["Changes"]
    assert set(described["properties"]) == set(CHANGED) <= set(changes.Changes.__dataclass_fields__)
    assert set(document["paths"]["/api/v1/reload"]["post"]["responses"]) >= {"200", "202", "409"}
