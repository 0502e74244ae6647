"""The images: linted, and the steps of the mirror's own done by hand. No container engine runs here, so the build
stage's commands are run with other paths, and what the final stage takes of them is started as its user would. The
audit's stages are only read: by hand, they would install Java into this machine, and half a gigabyte of Spark.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import pytest

from mirror.audit import command
from mirror.audit.spark import java
from tests.deploy import dockerfile, manifests
from tests.deploy.dockerfile import DOCKERFILE, ROOT, Instruction
from tests.service.stage.running import Mirror, config_text, get

HADOLINT = Path(sys.executable).parent / "hadolint"
TEXT = DOCKERFILE.read_text()
ARGUMENTS, STAGES = dockerfile.stages(TEXT)
BUILD, BUILD_AUDIT, AUDIT = (dockerfile.named(STAGES, name) for name in ("build", "build-audit", "audit"))
FINAL = STAGES[-1]
"""What is built without --target."""
UID = 65532


def lint(text: str) -> list[str]:
    """The rules that a Dockerfile breaks."""
    told = subprocess.run(
        [str(HADOLINT), "--no-fail", "--format", "json", "-"], input=text, capture_output=True, text=True, check=True
    )
    return [str(each["code"]) for each in json.loads(told.stdout)]


def test_it_is_linted() -> None:
    assert lint(TEXT) == []
    assert "hadolint" not in TEXT.replace("hadolint ignore", "hadolint"), "no rule is turned off"


def test_the_linter_sees_something() -> None:
    assert lint(TEXT.replace("${FINAL_IMAGE}", "python:latest", 1)) == ["DL3007"]
    assert lint(TEXT.replace('["mirror"]', "mirror", 1)) == ["DL3025"]
    assert lint(TEXT.replace("headless=17.*", "headless")) == ["DL3008"], "Java is pinned as well"


def test_images_are_pinned_and_of_one_python() -> None:
    """The environment of the build stage runs on the interpreter of the final one, and on its C library."""
    found = {name: re.fullmatch(r"python:(3\.\d+)(-slim)?-([a-z]+)", image) for name, image in ARGUMENTS.items()}
    build, final = found["BUILD_IMAGE"], found["FINAL_IMAGE"]
    assert build
    assert final
    assert (build[1], build[3]) == (final[1], final[3])
    assert (build[2], final[2]) == (None, "-slim"), "the compiler stays behind"
    froms = [stage[0].words[0] for stage in (BUILD, BUILD_AUDIT, AUDIT, FINAL)]
    assert froms == ["${BUILD_IMAGE}", "build", "${FINAL_IMAGE}", "${FINAL_IMAGE}"]
    assert STAGES == [BUILD, BUILD_AUDIT, AUDIT, FINAL], "the last one is what is built by default"


def test_what_the_final_stage_says() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    labels = dockerfile.only(FINAL, "LABEL").pairs
    assert labels["org.opencontainers.image.version"] == version
    assert f"mirror:{version} ." in TEXT
    assert dockerfile.only(FINAL, "USER").rest == f"{UID}:{UID}"
    assert dockerfile.only(FINAL, "ENTRYPOINT").rest == '["mirror"]', "exec form: signals reach the supervisor"
    assert dockerfile.of(FINAL, "RUN") == [], "nothing is installed in it"


def test_the_audits_image_is_the_mirrors_with_java_and_spark() -> None:
    """The same user, variables and place, and the command of the same name. No compiler, and no pip of its own."""
    mine, others = (dockerfile.only(stage, "LABEL").pairs for stage in (AUDIT, FINAL))
    version = mine["org.opencontainers.image.version"]
    assert version == others["org.opencontainers.image.version"]
    assert mine["org.opencontainers.image.title"] == "mirror-audit"
    assert f"--target audit -t mirror-audit:{version} ." in TEXT
    for word in ("USER", "ENV", "ENTRYPOINT", "WORKDIR"):
        assert dockerfile.only(AUDIT, word) == dockerfile.only(FINAL, word)
    assert dockerfile.only(AUDIT, "COPY").words == ["--from=build-audit", "/opt/mirror", "/opt/mirror"]
    assert dockerfile.only(FINAL, "CMD").words == ["run", "-c", "/etc/mirror/mirror.yaml"]
    assert dockerfile.only(AUDIT, "CMD").words == ["audit", "-c", "/etc/mirror/mirror.yaml"]
    (installs,) = [each for each in dockerfile.of(BUILD, "RUN") if " install " in each.rest]
    (pip,) = re.findall(r"python -m pip .* install .* \.(?= )", installs.rest)
    assert pip.removesuffix(" .") + " '.[audit]'" in dockerfile.only(BUILD_AUDIT, "RUN").rest


def test_the_audits_image_has_what_the_audit_needs() -> None:
    """Java of the version that it asks for; its packages, each imported when the image is built; a name for its user,
    without which Hadoop's code in Spark fails ("invalid null input: name")."""
    run = dockerfile.only(AUDIT, "RUN").rest
    assert re.findall(r"install --yes --no-install-recommends (.*?) &&", run) == [
        f"openjdk-{java.MINIMUM}-jre-headless={java.MINIMUM}.*"
    ]
    assert "rm -rf /var/lib/apt/lists/*" in run
    (imported,) = re.findall(r'-P -c "import (.*?)"', dockerfile.only(BUILD_AUDIT, "RUN").rest)
    names = [name.partition(".")[0] for name in imported.split(", ")]
    assert set(command.NEEDED) <= set(names)
    assert [name for name in names if find_spec(name) is None] == []
    assert f"groupadd --gid {UID} " in run
    assert f"useradd --uid {UID} --gid {UID} --no-create-home --home-dir /tmp " in run


def test_nothing_else_is_sent_to_the_builder() -> None:
    """Neither a virtual environment nor an extension that was compiled elsewhere."""
    admitted, below = dockerfile.ignoring()
    copied = {Path(name).name for each in dockerfile.of(BUILD, "COPY") for name in each.words[:-1]}
    assert admitted == copied
    assert below == {"__pycache__", "*.so"}


class ByHand:
    """The stages' steps, below a folder instead of a container's root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cwd = root

    def _here(self, text: str) -> str:
        """The text with the paths that the stages name, where they are here."""
        return re.sub(r"(?<![\w/])/(opt|src)\b", rf"{self.root}/\1", text)

    def build(self) -> Self:
        """Does the build stage's steps."""
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for word, rest in BUILD[1:]:
            match word:
                case "ENV":
                    environment |= Instruction(word, rest).pairs
                case "WORKDIR":
                    self.cwd = Path(self._here(rest))
                    self.cwd.mkdir()
                case "COPY":
                    *names, to = Instruction(word, rest).words
                    for name in names:
                        self._copy(ROOT / name, self.cwd / to)
                case "RUN":
                    shell = ["sh", "-c", self._here(rest)]
                    told = subprocess.run(
                        shell, cwd=self.cwd, env=environment, capture_output=True, text=True, check=False
                    )
                    assert told.returncode == 0, told.stdout + told.stderr
                case _:
                    raise AssertionError(f"{word} is not understood here")
        return self

    def _copy(self, name: Path, to: Path) -> None:
        _, below = dockerfile.ignoring()
        if name.is_dir():
            shutil.copytree(name, to, ignore=shutil.ignore_patterns(*below))
        else:
            shutil.copy(name, to)

    def finish(self) -> Self:
        """Leaves what the final stage copies, at the same place, and nothing of it can be written."""
        copied = dockerfile.only(FINAL, "COPY").words
        assert copied == ["--from=build", "/opt/mirror", "/opt/mirror"], "the scripts in it have its path"
        for path in self.root.iterdir():
            if path != self.root / "opt":
                shutil.rmtree(path)
        assert [path.name for path in (self.root / "opt").iterdir()] == ["mirror"]
        subprocess.run(["chmod", "-R", "a-w", str(self.root)], check=True)
        return self

    def command(self, *options: str) -> list[str]:
        """The image's entry point, as its user, with its variables and no others."""
        pairs = dockerfile.only(FINAL, "ENV").pairs
        variables = {name: self._here(value).replace("$PATH", "/usr/bin:/bin") for name, value in pairs.items()}
        entry = dockerfile.only(FINAL, "ENTRYPOINT").words
        given = [f"{name}={value}" for name, value in variables.items()]
        return ["env", "-i", "-C", "/", *given, *_user(), *entry, *options]

    def run(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command of it to its end."""
        return subprocess.run(self.command(*options), capture_output=True, text=True, check=False)

    def files(self) -> set[Path]:
        """All that is there."""
        return set(self.root.rglob("*"))


def _user() -> list[str]:
    """Has a command run as the image's user, if this is root, and if that user can reach this interpreter."""
    reached = all(path.stat().st_mode & 0o001 for path in Path(sys.base_prefix).parents)
    if os.geteuid() != 0 or not reached:
        return []
    return ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]


class InImage(Mirror):
    """``mirror run`` as the image runs it."""

    def __init__(self, image: ByHand, config: Path) -> None:
        super().__init__(config)
        *most, path = dockerfile.only(FINAL, "CMD").words
        assert path == "/etc/mirror/mirror.yaml"
        self._command = image.command(*most, str(config))


@pytest.fixture(scope="module")
def image() -> Iterator[ByHand]:
    """The final stage's layout, in a folder that everybody can reach."""
    root = Path(tempfile.mkdtemp(prefix="mirror-image-"))
    root.chmod(0o755)
    try:
        yield ByHand(root).build().finish()
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
        shutil.rmtree(root)


@pytest.fixture
def config() -> Iterator[Path]:
    """A file that everybody can read: clusters that are not there."""
    with tempfile.TemporaryDirectory(prefix="mirror-config-") as folder:
        path = Path(folder) / "mirror.yaml"
        path.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"]))
        Path(folder).chmod(0o755)
        path.chmod(0o644)
        yield path


@pytest.mark.long
def test_it_starts(image: ByHand, config: Path) -> None:
    """With the compiled code, and without what is not needed any more."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    told = image.run("--version")
    assert (told.returncode, told.stdout) == (0, f"mirror, version {version}, inner loop compiled\n"), told.stderr
    told = image.run("validate", "-c", str(config))
    assert told.returncode == 0, told.stderr
    (packages,) = (image.root / "opt/mirror/lib").glob("python3*/site-packages")
    assert not {"pip", "setuptools", "wheel"} & {path.name for path in packages.iterdir()}
    assert (packages / "mirror").is_dir()
    assert not list((packages / "mirror").rglob("*.[ch]"))


@pytest.mark.long
def test_it_runs_and_writes_nothing(image: ByHand, config: Path) -> None:
    """Every probe of the StatefulSet is answered, modules are compiled already, and SIGTERM ends it with code 0."""
    before = image.files()
    assert any(path.suffix == ".pyc" for path in before)
    with InImage(image, config) as mirror:
        answers = {path: get(mirror, path)[0] for path in manifests.probes(manifests.kustomized("base"))}
        assert answers == {"/-/healthy": 200, "/-/ready": 503}
        assert mirror.stop() == 0, mirror.told()
    assert image.files() == before
