"""Tokens for OAUTHBEARER: where they come from, how long they are kept, and what is said if there is none."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from mirror.net.errors import AuthenticationFailed
from mirror.net.security.librdkafka import client_config
from mirror.net.security.options import SaslOptions, Secret, SecurityOptions, TlsOptions, TokenOptions
from mirror.net.security.tokens import UNKNOWN_LIFE_S, Tokens
from tests import secured

SECRET = "of a client: 4713"
provided: list[Any] = []
"""What ``provide`` returns, one after the other."""


def provide() -> Any:
    found = provided.pop(0)
    if isinstance(found, Exception):
        raise found
    return found


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def server(status: int, answer: bytes) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A token server on loopback, and what it was asked: authorization and form."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], form))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/token", asked
        finally:
            running.shutdown()
            thread.join()


def test_a_token_from_a_file_is_read_each_time(tmp_path: Path) -> None:
    """Its end is what it says itself; of one that does not say, it is soon."""
    file = tmp_path / "token"
    tokens = Tokens(TokenOptions(token=Secret("", str(file))), clock=Clock())
    file.write_text("opaque\n")
    assert tokens.token() == ("opaque", 1_000_000 + UNKNOWN_LIFE_S)
    signed = secured.token()
    file.write_text(signed)
    value, ends_at_s = tokens.token()
    assert value == signed
    assert ends_at_s > 1_000_000_000
    file.write_text("")
    with pytest.raises(AuthenticationFailed, match="the token is empty"):
        tokens.token()


def test_a_provider_is_asked_when_the_token_has_used_its_life() -> None:
    clock = Clock()
    tokens = Tokens(TokenOptions(provider=f"{__name__}:provide"), clock=clock)
    provided[:] = [("one", clock.now + 100), ("two", clock.now + 200), "three", ValueError("no luck"), 5]
    assert [tokens.token().value for _ in range(3)] == ["one"] * 3
    clock.now += 81
    assert tokens.token().value == "two"
    clock.now += 200
    assert tokens.token() == ("three", clock.now + UNKNOWN_LIFE_S)
    clock.now += UNKNOWN_LIFE_S
    with pytest.raises(AuthenticationFailed, match=r"token.provider tests.*:provide failed: ValueError: no luck"):
        tokens.token()
    with pytest.raises(AuthenticationFailed, match="TypeError"):
        tokens.token()
    with pytest.raises(AuthenticationFailed, match="ModuleNotFoundError"):
        Tokens(TokenOptions(provider="nowhere_at_all:token")).token()


def test_client_credentials() -> None:
    """RFC 6749: id and secret as basic authentication; the token is kept for most of its life."""
    clock = Clock()
    with server(200, json.dumps({"access_token": "given", "expires_in": 100}).encode()) as (where, asked):
        options = TokenOptions(endpoint=where, client_id="me:", client_secret=Secret(SECRET), scope="kafka write")
        tokens = Tokens(options, clock=clock)
        assert tokens.token() == ("given", clock.now + 100)
        tokens.token()
        assert len(asked) == 1
        clock.now += 81
        tokens.token()
        assert len(asked) == 2
    authorization, form = asked[0]
    assert authorization.startswith("Basic ")
    assert form == "grant_type=client_credentials&scope=kafka+write"


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (401, b"{}", "gives no token: 401 Unauthorized; see sasl.oauthbearer.client.id"),
        (200, b"<html>", "answers with something else than JSON with an access_token"),
        (200, b'{"token": "x"}', "answers with something else than JSON with an access_token"),
    ],
)
def test_a_server_that_gives_none(status: int, answer: bytes, expected: str) -> None:
    with server(status, answer) as (where, _):
        tokens = Tokens(TokenOptions(endpoint=where, client_id="me", client_secret=Secret(SECRET)))
        with pytest.raises(AuthenticationFailed) as caught:
            tokens.token()
    assert expected in str(caught.value)
    assert SECRET not in str(caught.value)
    gone = Tokens(TokenOptions(endpoint=where, client_id="me", client_secret=Secret(SECRET)))
    with pytest.raises(AuthenticationFailed, match="does not answer: "):
        gone.token()


def test_the_same_for_librdkafka(tmp_path: Path) -> None:
    tls = TlsOptions(ca_file="/ca", certificate_file="/cert", verify_hostname=False)
    scram = SaslOptions(mechanism="SCRAM-SHA-256", username="me", password=Secret(SECRET))
    assert client_config(SecurityOptions(tls=tls, sasl=scram)) == {
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": "/ca",
        "ssl.certificate.location": "/cert",
        "ssl.key.location": "/cert",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": SECRET,
    }
    assert client_config(SecurityOptions()) == {"security.protocol": "PLAINTEXT"}
    tokens = TokenOptions(token=Secret(secured.token()), extensions=(("logicalCluster", "lkc-1"),))
    config = client_config(SecurityOptions(sasl=SaslOptions(mechanism="OAUTHBEARER", tokens=tokens)))
    value, ends_at_s, principal, extensions = config["oauth_cb"]("")
    assert value == tokens.token.value
    assert ends_at_s > 1_000_000_000
    assert (principal, extensions) == ("", {"logicalCluster": "lkc-1"})
