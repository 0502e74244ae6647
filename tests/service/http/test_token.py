"""The token of a real ``mirror run``, from the configuration to the command line. Its brokers are away."""

import http.client
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.http.guard import GUARD
from mirror.service.worker_settings import Supervision
from tests.service.config.loading import Load, base
from tests.service.stage.running import Mirror, address, cli, config_text, get, mirror

TOKEN, NEXT = "tok3n-of-today", "tok3n-of-tomorrow"
NOWHERE = ("127.0.0.1:1", "127.0.0.1:2", ["t"])


def pause(process: Mirror, **headers: str) -> tuple[int, str]:
    """Status code and body."""
    connection = http.client.HTTPConnection("127.0.0.1", int(address(process).rpartition(":")[2]), timeout=60)
    try:
        connection.request("POST", "/api/v1/partitions/pause", headers={GUARD: "x", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_from_the_file_to_the_command_line(tmp_path: Path) -> None:
    """
    1. Whoever does not know the token changes nothing; everyone may read.
    2. The commands take it from the configuration, and go on to what they are for.
    3. A new token in the file counts from then on. Without a reload, as secrets of clusters do.
    4. A reload counts as well, by which the token goes: then the header is enough, as the server is on loopback.
    5. No line of the log, no argument and no environment has it.
    """
    secret, config = tmp_path / "token", tmp_path / "mirror.yaml"
    secret.write_text(f"{TOKEN}\n")
    with mirror(config, config_text(*NOWHERE, top={"http.token": f"${{file:{secret}}}"})) as process:
        assert pause(process)[0] == 401
        assert get(process, "/api/v1/status")[0] == 200
        told = cli(process, config, "pause", "t")
        assert (told.returncode, "no worker is ready" in told.stderr) == (1, True), told.stderr
        secret.write_text(f"{NEXT}\n")
        assert pause(process, Authorization=f"Bearer {TOKEN}")[0] == 401
        assert pause(process, Authorization=f"Bearer {NEXT}")[0] == 404
        config.write_text(config_text(*NOWHERE))
        process.process.send_signal(1)
        process.wait_event("reloaded", flows=["source->destination"])
        process.wait_for(lambda: pause(process)[0] == 404, "the end of the token")
        shown = Path(f"/proc/{process.process.pid}/cmdline").read_bytes()
        shown += Path(f"/proc/{process.process.pid}/environ").read_bytes()
        assert process.stop() == 0
        assert not any(each in json.dumps(process.lines) or each.encode() in shown for each in (TOKEN, NEXT))


def test_beyond_loopback(tmp_path: Path) -> None:
    """Without a token, nobody changes anything, also from this machine; what to do is said."""
    config = tmp_path / "mirror.yaml"
    with mirror(config, config_text(*NOWHERE, top={"http.listen": "0.0.0.0:0"})) as process:
        code, body = pause(process)
        assert code == 403
        assert "http.listen reaches beyond this machine, so changes need a token: set http.token" in body


def test_on_the_way(tmp_path: Path) -> None:
    """To the supervisor it goes with the other settings, and no text of them shows it."""
    (tmp_path / "mirror.yaml").write_text(base(top=f"http.token: {TOKEN}"))
    told = supervision(load(tmp_path / "mirror.yaml"))
    assert Supervision.unpack(json.loads(json.dumps(told.pack()))).http_token.read() == TOKEN
    assert TOKEN not in repr(told)


@pytest.mark.parametrize("token", [TOKEN, "${file:token}", "${env:TOKEN}"])
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_it_is_not_shown(tmp_path: Path, form: str, token: str) -> None:
    (tmp_path / "token").write_text(TOKEN)
    path = tmp_path / "mirror.yaml"
    path.write_text(base(top=f'http.token: "{token}"'))
    ran = CliRunner(env={"TOKEN": TOKEN}).invoke(main, ["config", "show", "-c", str(path), "--format", form])
    assert ran.exit_code == 0, ran.output
    assert TOKEN not in ran.output
    assert "http.token" in ran.output


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("two words", "http.token: has characters that a header cannot carry; write printable ASCII"),
        ("tökén", "http.token: has characters that a header cannot carry"),
        ("${env:EMPTY}", "is empty; the file or the variable has to hold the token; leave the key out"),
        ("${file:empty}", "is empty; the file"),
        ("${env:TWO}", "http.token: has characters that a header cannot carry"),
        (17, "http.token: has to be text"),
    ],
)
def test_what_is_no_token(loading: Load, tmp_path: Path, token: object, message: str) -> None:
    """It is not shown either."""
    (tmp_path / "empty").write_text("\n")
    text = base(top=f"http.token: {json.dumps(token, ensure_ascii=False)}")
    (found,) = loading.errors(text, {"EMPTY": "", "TWO": "a b"})
    assert message in found
    assert "a b" not in found
    assert "two words" not in found
