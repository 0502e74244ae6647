"""Where the tools come from: PATH, the build folder, or the package, with and without lists of packages."""

from pathlib import Path

import pytest

from tests.prometheus import tools

APT = """#!/bin/sh
echo "$*" >> {folder}/asked
case "$*" in
  *--simulate*) echo "Reading lists"; echo "Inst liba (1 Debian)"; echo "Inst chromium-headless-shell (2 Debian)" ;;
  *"download liba"*) : > liba_1.deb; : > chromium-headless-shell_2.deb ;;
  *update) mkdir -p {folder}/listed ;;
  *download*) test -d {folder}/listed || {{ echo "E: no candidate" >&2; exit 100; }}; : > prometheus_1_all.deb ;;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/bin" && : > "$3/usr/bin/promtool" && chmod +x "$3/usr/bin/promtool"
mkdir -p "$3/usr/lib/chromium" "$3/usr/lib/x86_64-linux-gnu" && : > "$3/usr/lib/chromium/chromium-headless-shell"
"""


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text.format(folder=folder) if name == "apt-get" else text)
    path.chmod(0o755)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs ahead of all others, with a Debian's in it; nothing is fetched yet."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    monkeypatch.setattr(tools, "FOLDER", tmp_path / "tools")
    program(folder, "apt-get", APT)
    program(folder, "dpkg", DPKG)
    return folder


def test_what_is_on_path_is_used(programs: Path) -> None:
    there = program(programs, "promtool", "#!/bin/sh\n")
    assert tools.tool("promtool") == str(there)
    assert not (programs / "asked").exists()


def test_the_package_is_fetched_once(programs: Path) -> None:
    """With the system's lists; what is left is the package's content alone."""
    (programs / "listed").mkdir()
    found = [tools.tool("promtool") for _ in range(2)]
    assert found == [str(tools.FOLDER / "prometheus/usr/bin/promtool")] * 2
    assert (programs / "asked").read_text() == "download prometheus\n"
    assert {path.name for path in tools.FOLDER.iterdir()} == {"lock", "prometheus"}


def test_lists_of_packages_are_fetched_if_there_are_none(programs: Path) -> None:
    """Into a folder of ours: the system's are not written to."""
    assert Path(tools.tool("promtool")).exists()
    first, update, again = (programs / "asked").read_text().splitlines()
    assert first == "download prometheus"
    assert update.endswith(" update")
    assert again.endswith(" download prometheus")
    assert update.count(f"={tools.FOLDER}") == again.count(f"={tools.FOLDER}") == 3


def test_the_browser_is_fetched_with_what_it_needs(programs: Path) -> None:
    """What the system does not have; where its libraries are is said to it."""
    found, environment = tools.browser()
    assert Path(found).exists()
    assert (programs / "asked").read_text().splitlines()[-1] == "download liba chromium-headless-shell"
    folder = tools.FOLDER / "chromium-headless-shell/usr/lib/x86_64-linux-gnu"
    assert environment == {"LD_LIBRARY_PATH": f"{folder}:{folder}/pulseaudio"}
    there = program(programs, "chromium", "#!/bin/sh\n")
    assert tools.browser() == (str(there), {})


def test_no_apt(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs / "apt-get").unlink()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(pytest.skip.Exception, match="install Prometheus"):
        tools.tool("promtool")


def test_what_apt_complains_of_is_told(programs: Path) -> None:
    """It works here, so that this is no reason to skip."""
    program(programs, "apt-get", "#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    with pytest.raises(RuntimeError, match="E: no network"):
        tools.tool("promtool")
    assert {path.name for path in tools.FOLDER.iterdir()} == {"lock"}
