"""What docs/OPERATING.md says about Kubernetes: commands and paths that are there, sizes that were measured."""

import re
from collections.abc import Iterator

import click
import pytest
import yaml

from bench.report.documents import DOCUMENTS
from mirror.cli import main
from tests.deploy import manifests
from tests.deploy.manifests import OLDEST, ROOT, kustomized

SECTION = re.findall(
    r"^## In Kubernetes\n(.*?)^## ", (ROOT / "docs/OPERATING.md").read_text(), re.MULTILINE | re.DOTALL
)[0]
MANY = 2_000
"""Partitions, up to which the requested memory is said to be enough."""


def peaks(text: str) -> Iterator[tuple[int, int]]:
    """The mirror's peaks of memory in tables of documents: partitions, MB."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        if head[-1].startswith("peak MB"):
            at = head.index("partitions")
            yield from ((int(row[at].replace(",", "")), int(row[-1].split(" / ")[0])) for row in rows)


def test_sizes_are_above_what_was_measured() -> None:
    """With one worker, which is what all of them were measured with."""
    resources = manifests.container(kustomized("base"))["resources"]
    requested, limit = (int(resources[kind]["memory"].removesuffix("Mi")) << 20 for kind in ("requests", "limits"))
    measured = list(peaks("".join(document.read_text() for document in DOCUMENTS)))
    assert len(measured) > 20
    assert max(partitions for partitions, _ in measured) > MANY
    assert max(mb for partitions, mb in measured if partitions <= MANY) * 10**6 < requested
    assert max(mb for _, mb in measured) * 10**6 < limit
    said = f"{requested >> 20} MiB are requested", f"up\nto {MANY:,} partitions", f"The limit, {limit >> 20} MiB"
    assert [each for each in said if each not in SECTION] == []


def test_what_it_names_is_there() -> None:
    assert [path for path in re.findall(r"deploy/[\w./-]*\w", SECTION) if not (ROOT / path).exists()] == []
    assert f"Kubernetes {OLDEST} or later" in SECTION
    mounted = {each["mountPath"] for each in manifests.container(kustomized("base"))["volumeMounts"]}
    paths = re.findall(r"/(?:etc|run)/[\w/.-]*", SECTION)
    assert len(paths) > 3
    assert [path for path in paths if not any(path.startswith(each) for each in mounted)] == []


@pytest.mark.parametrize("command", re.findall(r"-- (mirror .*?)(?:   #.*)?$", SECTION, re.MULTILINE))
def test_commands_are_the_mirrors(command: str) -> None:
    """They exist, take what they are given, and read the file that the pod has."""
    _, *words = command.split()
    at: click.Command = main
    while isinstance(at, click.Group):
        at = at.commands[words.pop(0)]
    context = at.make_context(at.name, words)
    assert str(context.params["path"]) == manifests.container(kustomized("base"))["args"][-1]


def test_the_secret_has_what_the_example_reads() -> None:
    text = manifests.config_of(kustomized("overlays/production"))
    read = set(re.findall(rf"{manifests.CREDENTIALS}/([\w.-]+)", text))
    assert set(re.findall(r"--from-file=(\S+)", SECTION)) == read
    (secret,) = [each["secret"] for each in manifests.pod(kustomized("base"))["volumes"] if "secret" in each]
    assert f"create secret generic {secret['secretName']} " in SECTION
    data = yaml.safe_load(text)
    assert f'http.listen: "{data["http.listen"]}"' in SECTION
