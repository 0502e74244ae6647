"""Units of systemd's that run a configuration: found, driven, and what they say passed on. systemctl is a fake."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mirror.cli import main
from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_HALTED, EXIT_OK, EXIT_USAGE
from mirror.service.instance import units
from mirror.service.instance.announcing import announce
from mirror.service.instance.place import STATE_HOME, Failed
from tests.service.config.loading import base

UNIT = "mirror@west.service"
ROOT = Path(__file__).resolve().parents[3]
SYSTEMCTL = """#!/bin/sh
cd {folder}
echo "$@" >> calls
for last; do :; done
case "$1" in
list-*) cat "$1" 2>/dev/null; exit 0 ;;
show) [ -e broken ] && {{ echo "Failed to connect to bus" >&2; exit 1; }}; cat "show-$last" 2>/dev/null; exit 0 ;;
*) cat said >&2 2>/dev/null; [ -e "after-$1" ] && cp "after-$1" "show-$last"; exit $(cat code 2>/dev/null || echo 0) ;;
esac
"""


class Systemd:
    """A machine that systemd runs, as systemctl shows it."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder, self.config = folder, config
        for name, text in (
            ("systemctl", SYSTEMCTL),
            ("journalctl", "#!/bin/sh\necho journal $@ >> {folder}/calls; cat {folder}/journal\n"),
        ):
            (folder / name).write_text(text.format(folder=folder))
            (folder / name).chmod(0o755)

    def shows(self, unit: str = UNIT, *, to: str = "show", config: Path | None = None, **more: str) -> None:
        argv = f"/opt/mirror/bin/mirror run -c {config or self.config}"
        told = {
            "Id": unit,
            "LoadState": "loaded",
            "ActiveState": "inactive",
            "SubState": "dead",
            "MainPID": "0",
            "StatusText": "",
            "ExecMainStatus": "0",
            "ExecStart": f"{{ path=/opt/mirror/bin/mirror ; argv[]={argv} ; ignore_errors=no ; pid=0 }}",
        } | more
        name = f"show-{unit}" if to == "show" else to
        (self.folder / name).write_text("".join(f"{key}={value}\n" for key, value in told.items()))

    def runs(self, *, to: str = "show", pid: int = 7) -> None:
        self.shows(
            to=to, ActiveState="active", SubState="running", MainPID=str(pid), StatusText="ready; partitions: 2 active"
        )

    def writes(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    @property
    def did(self) -> list[str]:
        """What was asked for, apart from looking."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if not line.startswith(("show", "list-", "journal"))]

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words, "-c", str(self.config)])


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    config = tmp_path / "west.yaml"
    config.write_text(base())
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv(STATE_HOME, str(tmp_path / "state"))
    monkeypatch.setattr(units, "BOOTED", tmp_path / "booted")
    return Systemd(folder, config)


def test_start_and_stop(systemd: Systemd) -> None:
    """
    1. It starts the unit that runs this file, and shows its state. One that runs is not started again.
    2. It stops it, and says what the journal has of the drain. One that does not run is stopped already.
    """
    systemd.shows()
    systemd.runs(to="after-start")
    systemd.shows(to="after-stop")
    ran = systemd.run("start", "--format", "json")
    assert ran.exit_code == EXIT_OK, ran.output
    told = json.loads(ran.stdout)
    assert (told["unit"], told["outcome"], told["pid"], told["ready"]) == (UNIT, "started", 7, True)
    assert told["status"] == "ready; partitions: 2 active"
    again = systemd.run("start")
    assert again.stdout.splitlines()[0] == f"{UNIT}: already running, process 7"
    assert again.stdout.splitlines()[-1] == f"  log:      journalctl -u {UNIT}"
    drained = {"event": "stopped", "drained": True, "pending": 0, "halted": 1, "records": 5, "batches": 2, "bytes": 99}
    lines = [{"event": "stopped"}, {"event": "stopping"}, drained | {"partitions": 3, "committed": 3}]
    systemd.writes("journal", "\n".join([*map(json.dumps, lines), "[1, 2]", "mirror@west.service: Succeeded."]))
    begun = time.time()
    ran = systemd.run("stop")
    assert ran.exit_code == EXIT_HALTED
    (asked,) = [line for line in (systemd.folder / "calls").read_text().splitlines() if line.startswith("journal")]
    assert int(begun) <= int(asked.partition("--since=@")[2].split()[0]) <= time.time(), "no earlier stop is told of"
    assert ran.stdout.splitlines()[0] == f"{UNIT}: stopped"
    assert (
        "5 records in 2 batches (99 B); group offsets committed before it left: 3 of 3 partitions; 1 halted\n"
        in ran.stdout
    )
    assert systemd.run("stop").stdout.splitlines()[0] == f"{UNIT}: not running"
    assert systemd.did == [f"start {UNIT}", f"stop {UNIT}"]


def test_the_journal_cannot_be_read(systemd: Systemd) -> None:
    """Then it says where that is."""
    systemd.runs()
    (systemd.folder / "journalctl").write_text("#!/bin/sh\nexit 1\n")
    ran = systemd.run("stop", "--format", "json")
    assert (ran.exit_code, json.loads(ran.stdout)["drained"]) == (EXIT_OK, None)


def test_a_refusal(systemd: Systemd, capfd: pytest.CaptureFixture[str]) -> None:
    """What polkit says is passed on."""
    systemd.shows()
    systemd.writes("code", "4")
    systemd.writes("said", f"Failed to start {UNIT}: Access denied\n")
    ran = systemd.run("start")
    assert ran.exit_code == EXIT_FAILED
    assert ran.stderr.startswith(f"systemctl start {UNIT} failed (exit code 4)")
    assert capfd.readouterr().err == f"Failed to start {UNIT}: Access denied\n"


def test_the_unit_finds_a_wrong_configuration(systemd: Systemd) -> None:
    """The exit code is the mirror's."""
    systemd.shows()
    systemd.shows(to="after-start", ActiveState="failed", ExecMainStatus="78")
    systemd.writes("code", "1")
    assert systemd.run("start").exit_code == EXIT_CONFIG


def test_restart(systemd: Systemd) -> None:
    """A wrong configuration is told before, and the unit is left alone."""
    systemd.runs()
    systemd.runs(to="after-restart", pid=8)
    systemd.writes("journal", "")
    ran = systemd.run("restart")
    assert ran.stdout.splitlines()[0] == f"{UNIT}: restarted, process 8"
    systemd.config.write_text("clusters: [")
    assert systemd.run("restart").exit_code == EXIT_CONFIG
    assert systemd.did == [f"restart {UNIT}"]


def test_no_second_copy(systemd: Systemd) -> None:
    """Neither verb starts the unit while a ``mirror run`` runs the same file."""
    systemd.shows()
    with announce(systemd.config) or pytest.fail("not announced"):
        for verb in ("start", "restart"):
            ran = systemd.run(verb)
            assert ran.exit_code == EXIT_FAILED
            assert ran.stderr.startswith("not started: `mirror run` runs ")
    assert systemd.run("restart").exit_code == EXIT_OK
    assert systemd.did == [f"restart {UNIT}"]


def test_workers_are_the_units(systemd: Systemd) -> None:
    systemd.shows()
    ran = systemd.run("start", "--workers", "3")
    assert ran.exit_code == EXIT_USAGE
    assert f"{UNIT} says with how many workers it runs" in ran.stderr


@pytest.mark.parametrize(
    ("unit", "listed", "more"),
    [
        (UNIT, "", {}),
        ("mirror-east.service", "list-units", {}),
        ("mirror-east.service", "list-unit-files", {}),
        (UNIT, "", {"LoadState": "not-found"}),
        (UNIT, "", {"config": Path("/etc/mirror/other.yaml")}),
        (UNIT, "", {"ExecStart": "{ path=/opt/other ; argv[]=/opt/other run -c {config} }"}),
        ("mirrors.service", "", {}),
    ],
)
def test_which_unit(systemd: Systemd, unit: str, listed: str, more: Mapping[str, object]) -> None:
    """The one that runs this very file, by whatever name; the template's instance need not have run ever."""
    more = {
        key: str(value).replace("{config}", str(systemd.config)) if key != "config" else value
        for key, value in more.items()
    }
    systemd.shows(unit, **more)  # type: ignore[arg-type]
    if listed:
        systemd.writes(listed, f"mirror@.service enabled\n{unit} loaded active running Kafka mirror\n")
    found = units.unit_of(systemd.config)
    ours = not more and (listed or unit == UNIT)
    assert (found.name if found else None) == (unit if ours else None)
    assert not [line for line in (systemd.folder / "calls").read_text().splitlines() if "mirror@.service" in line]


def test_by_another_name(systemd: Systemd, tmp_path: Path) -> None:
    """A link to the file is the file."""
    systemd.shows()
    link = tmp_path / "here.yaml"
    link.symlink_to(systemd.config)
    found = units.unit_of(link)
    assert found is not None
    assert found.name == UNIT


def test_the_shipped_unit_is_one(systemd: Systemd) -> None:
    """Its command line is what we look for."""
    text = (ROOT / "deploy" / "systemd" / "mirror@.service").read_text()
    (command,) = [line.removeprefix("ExecStart=") for line in text.splitlines() if line.startswith("ExecStart=")]
    command = command.replace("/etc/mirror/%i.yaml", str(systemd.config))
    systemd.shows(ExecStart=f"{{ path=/opt/mirror/bin/mirror ; argv[]={command} ; ignore_errors=no }}")
    assert units.unit_of(systemd.config) is not None


def test_systemd_cannot_be_asked(systemd: Systemd) -> None:
    """Where it runs the machine, nothing is started beside it. Elsewhere, as in a container, there is no unit."""
    systemd.shows()
    systemd.writes("broken", "")
    assert units.unit_of(systemd.config) is None
    units.BOOTED.mkdir()
    with pytest.raises(Failed, match=r"systemd cannot be asked .* systemctl show: Failed to connect to bus"):
        units.unit_of(systemd.config)
    assert systemd.run("start").exit_code == EXIT_FAILED


def test_there_is_no_systemctl(systemd: Systemd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    systemd.shows()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert units.unit_of(systemd.config) is None
