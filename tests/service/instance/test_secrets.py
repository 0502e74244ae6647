"""Where the secrets of a configuration go, and where they do not: arguments, environments, output, files."""

import os
import signal
from pathlib import Path

import psutil

from tests import secured
from tests.service.stage.running import Mirror, config_text, get, mirror

PASSWORD, KEY_PASSWORD = "of the user: 4717", secured.KEY_PASSWORD


def test_what_others_could_see_of_a_mirror(tmp_path: Path) -> None:
    """
    1. A mirror has secrets from files, and waits for its clusters. Its supervisor and its worker run.
    2. Neither arguments nor environment of a process have a secret, and no process has a file open in which one is.
    3. The file is changed and read again, by another process; both clusters' settings go to the worker anew.
    4. Nothing that was printed, is shown, or was written beside the configuration, has a secret.
    """
    files = secured.made(tmp_path)
    secrets = {"password": PASSWORD, "key-password": KEY_PASSWORD, "token": "of-requests-4719" * 4}
    for name, secret in secrets.items():
        (tmp_path / name).write_text(secret)
    cluster = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.client),
        "ssl.key.location": str(files.locked_key),
        "ssl.key.password": "${file:key-password}",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "${file:password}",
    }

    def text(level: str) -> str:
        clusters = {"source": cluster, "destination": cluster | {"client.id": f"as-{level}"}}
        top = {"http.token": "${file:token}"}
        return config_text("127.0.0.1:1", "127.0.0.1:2", ["t"], clusters=clusters, top=top)

    before = set(tmp_path.iterdir())
    with mirror(tmp_path / "mirror.yaml", text("first")) as process:
        process.wait_event("waiting")
        visible = _visible(process)
        assert "mirror-worker-" in visible
        (tmp_path / "mirror.yaml").write_text(text("second"))
        process.process.send_signal(signal.SIGHUP)
        process.wait_event("reloaded")
        process.wait_for(lambda: len(process.of("waiting")) > 1, "the flow with its new settings")
        visible += _visible(process) + "".join(get(process, path)[1] for path in ("/", "/metrics", "/api/v1/status"))
        assert process.stop() == 0
    printed = "".join(map(str, process.lines)) + "".join(process.noise) + process.errors
    written = "".join(path.read_text() for path in set(tmp_path.iterdir()) - before)
    for name, secret in secrets.items():
        assert secret not in visible + printed + written, name


def _visible(process: Mirror) -> str:
    """What the system shows of its processes: to everybody (arguments), and to their user."""
    parent = psutil.Process(process.process.pid)
    seen: list[str] = []
    for each in (parent, *parent.children(recursive=True)):
        seen += [*each.cmdline(), *map(str, each.environ().items())]
        for descriptor in Path(f"/proc/{each.pid}/fd").iterdir():
            target = os.readlink(descriptor)
            if target.startswith(("/memfd:", "/tmp/", "/run/")) and descriptor.is_file():
                seen.append(descriptor.read_text(errors="replace"))
    return "\n".join(seen)
