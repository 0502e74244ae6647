"""The nightly audit of ``deploy/systemd``: its service and its timer, judged by systemd's own tool."""

import re
from pathlib import Path

import pytest

from mirror.audited import SUFFIX
from tests.deploy.test_systemd import EXPOSURE_MOST, PROGRAM, UNIT, analyze, verify
from tests.service.stage.running import MIRROR
from tests.shown import parse

SERVICE, TIMER = (UNIT.with_name(f"mirror-audit@.{kind}") for kind in ("service", "timer"))


def placed(folder: Path, *, wrong: tuple[str, str] = ("", "")) -> list[Path]:
    """Both units side by side, the service with the program that is here. ``wrong``: text, and what to put for it."""
    made = []
    for unit in (SERVICE, TIMER):
        text = unit.read_text().replace(*wrong, 1) if wrong[0] else unit.read_text()
        made.append(folder / unit.name)
        made[-1].write_text(text.replace(PROGRAM, str(MIRROR)))
    return made


def values(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def test_systemd_takes_them_as_they_are(tmp_path: Path) -> None:
    for path in placed(tmp_path):
        assert verify(path) == (0, ""), path.name


def test_their_example_of_a_secret_is_right(tmp_path: Path) -> None:
    service, _ = placed(tmp_path)
    text, count = re.subn(r"^#(?=(?:LoadCredential|BindReadOnlyPaths)=)", "", service.read_text(), flags=re.MULTILINE)
    service.write_text(text)
    assert (count, verify(service)) == (2, (0, ""))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("StateDirectoryMode=0755", "StateDirectoryMod=0755", "Unknown key"),
        (PROGRAM, "/opt/mirror/bin/nothing", "is not executable"),
        ("TimeoutStartSec=20h", "TimeoutStartSec=a night", "Failed to parse"),
        ("OnCalendar=*-*-* 02:00:00", "OnCalendar=every night", "Failed to parse calendar"),
    ],
)
def test_a_mistake_is_seen(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    told = "".join(verify(path)[1] for path in placed(tmp_path, wrong=(right, wrong)))
    assert said in told


def test_it_may_do_little(tmp_path: Path) -> None:
    """Nearly as little as the mirror itself: Java has to make code as it runs."""
    service, _ = placed(tmp_path)
    told = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MOST}", "--no-pager", service)
    assert told.returncode == 0, told.stdout


def test_it_audits_the_configuration_that_the_mirror_runs() -> None:
    (audits,), (runs,) = values(SERVICE, "ExecStart"), values(UNIT, "ExecStart")
    assert audits == runs.replace(" run ", " audit ")
    parse(["mirror", *audits.replace("%i", "west").split()[1:]])


def test_what_it_leaves_is_where_others_may_read_it() -> None:
    """Its own folder is what it may write, and the example names a file there."""
    (folder,), (mode,) = values(SERVICE, "StateDirectory"), values(SERVICE, "StateDirectoryMode")
    (example,) = re.findall(r"^#   audit\.metrics\.file: (\S+)$", SERVICE.read_text(), re.MULTILINE)
    assert (Path(example).parent, Path(example).suffix) == (Path("/var/lib") / folder, SUFFIX)
    assert mode == "0755"
    assert (values(SERVICE, "DynamicUser"), values(SERVICE, "User")) == ([], ["mirror-audit"])
    assert values(SERVICE, "SuccessExitStatus") == []


def test_it_is_every_night() -> None:
    """It begins at the same hour each day, and a night that was missed is made up for."""
    (when,) = values(TIMER, "OnCalendar")
    told = analyze("calendar", "--iterations=3", "--base-time=2026-01-01 12:00:00", when)
    assert told.returncode == 0, told.stderr
    assert set(re.findall(r"2026-01-0(\d) 02:00:00", told.stdout)) == {"2", "3", "4"}
    assert values(TIMER, "Persistent") == ["yes"]
    assert values(TIMER, "Unit") == [], "it is that of the same name"
