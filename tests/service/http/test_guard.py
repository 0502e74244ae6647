"""Who may ask the supervisor's HTTP server for what."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mirror.net.security.options import Secret
from mirror.service.http.guard import GUARD, Guard, is_loopback
from tests.service.http.asking import Answer, asked

TOKEN = Secret("c0rrect-horse")
OURS = {GUARD: "cli", "Host": "127.0.0.1:9464"}
SHOWN = {"Authorization": "Bearer c0rrect-horse"}


async def done(scope: Scope, receive: Receive, send: Send) -> None:
    await Response("done")(scope, receive, send)


async def ask(method: str, headers: Mapping[str, str], *, host: str = "127.0.0.1", token: Secret = Secret()) -> Answer:  # noqa: B008 (frozen)
    return await asked(Guard(done, host=host, token=lambda: token), method, "/api/v1/reload", headers)


@pytest.mark.parametrize("token", [Secret(), TOKEN])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_everyone_may_read(method: str, token: Secret) -> None:
    assert (await ask(method, {}, token=token)).status == 200
    assert (await ask(method, {"Host": "mirror.example"}, host="0.0.0.0", token=token)).status == 200


@pytest.mark.parametrize(
    "name",
    [
        "mirror.example", "192.0.2.1:80", "localhost.example", "[::2]:1", "[::2]", "localhost.", "localhost.:9",
        "[::1].example:9", "[::1]example", "[::1", "localhost:9.example", "localhost:9:9", "user@localhost", ":", "x:",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_name_that_was_made_to_lead_here(method: str, name: str) -> None:
    """DNS rebinding: a web page whose name leads here may send any header, and read what is answered."""
    answer = await ask(method, {**OURS, **SHOWN, "Host": name}, token=TOKEN)
    assert (answer.status, "127.0.0.1" in answer.data["error"]) == (403, True)


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LocalHost:9",
        "localhost:",
        "127.0.0.1",
        "127.0.0.1:9",
        "[::1]",
        "[::1]:9",
        "[::ffff:127.0.0.1]",
        "",
    ],
)
async def test_own_names(name: str) -> None:
    """Without a port, it is 80. No browser leaves the name out."""
    assert (await ask("POST", {**OURS, "Host": name})).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "BREW"])
async def test_changes_without_a_token(method: str) -> None:
    """
    1. On loopback, they need a header that a form or a link cannot carry.
    2. What a proxy passes on may be anybody's.
    3. A server that others reach takes none, and says what to do.
    """
    assert (await ask(method, OURS)).status == 200
    without = await ask(method, {"Host": "127.0.0.1", "Content-Type": "application/json"})
    assert (without.status, GUARD in without.data["error"]) == (403, True)
    for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"):
        passed_on = await ask(method, {**OURS, name: "192.0.2.1"})
        assert (passed_on.status, "set http.token" in passed_on.data["error"]) == (403, True)
    for host in ("0.0.0.0", "::", "192.0.2.1", "mirror.example"):
        elsewhere = await ask(method, OURS, host=host)
        assert (elsewhere.status, "set http.token" in elsewhere.data["error"]) == (403, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_changes_with_a_token(host: str) -> None:
    """The token is enough, and nothing else is: neither where a request comes from, nor the header without a token."""
    assert (await ask("POST", SHOWN, host=host, token=TOKEN)).status == 200
    assert (await ask("POST", {"Authorization": "bearer  c0rrect-horse "}, host=host, token=TOKEN)).status == 200
    for wrong in (
        "", "Bearer", "Bearer c0rrect-hors", "Bearer c0rrect-horses", "Bearer \xe9", "Basic c0rrect-horse",
        "c0rrect-horse",
    ):  # fmt: skip
        shown = {"Authorization": wrong} if wrong else {}
        answer = await ask("POST", {**OURS, **shown}, host=host, token=TOKEN)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "http.token" in answer.data["error"]
        assert TOKEN.value not in answer.body.decode()


async def test_a_token_in_a_file(tmp_path: Path) -> None:
    """It is read again for each request. One that cannot be read, or is empty, lets nobody in."""
    path = tmp_path / "token"
    token = Secret("first", str(path))
    for content, code in (("first\n", 401), ("c0rrect-horse\n", 200), ("\n", 503), ("", 503)):
        path.write_text(content)
        assert (await ask("POST", {**OURS, **SHOWN}, token=token)).status == code
    assert (await ask("POST", {**OURS, "Authorization": "Bearer "}, token=token)).status == 503
    path.unlink()
    answer = await ask("POST", {**OURS, **SHOWN}, token=token)
    assert (answer.status, str(path) in answer.data["error"]) == (503, True)


async def test_the_form_of_a_refusal() -> None:
    """Programs get JSON, people text."""
    answer = await asked(Guard(done, host="127.0.0.1", token=Secret), "POST", "/status", {"Host": "localhost"})
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.body == f"the header {GUARD} is missing\n".encode()


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False), ("192.0.2.1", False), ("example.com", False), ("", False), ("localhost.", False),
    ],
)  # fmt: skip
def test_is_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own
