"""``mm2.properties``: which keys count where, as MirrorMaker 2 has it."""

from pathlib import Path

import pytest

from mirror.service.config import ConfigError
from mirror.service.importing.model import Fate, Inputs
from mirror.service.importing.read import dedicated
from tests.service.importing.importing import TWO


def read(text: str) -> Inputs:
    return dedicated.read("mm2.properties", text.encode())


def fates(inputs: Inputs) -> dict[str, tuple[Fate, str]]:
    """Key -> what became of it, of those of which something is said yet."""
    return {account.given.name: (fate, account.why) for fate in Fate for account in inputs.ledger.accounts(fate)}


def test_what_stands_behind_a_flow_comes_before_what_holds_for_all() -> None:
    inputs = read(f"{TWO}topics = all\na->b.topics = some\ngroups = g\n")
    settings = inputs.flows["a->b"].settings
    assert (settings["topics"].value, settings["groups"].value) == ("some", "g")


def test_the_last_of_two_counts() -> None:
    inputs = read(f"{TWO}topics = first\ntopics = second\n")
    assert inputs.flows["a->b"].settings["topics"].value == "second"
    (account,) = inputs.ledger.accounts(Fate.NOT_NEEDED)
    assert (account.given.line, account.why) == (5, "it stands again in line 6, and the last one counts")


@pytest.mark.parametrize("top", ["", "enabled = true\n"])
def test_a_flow_has_to_be_enabled(top: str) -> None:
    """By itself, or all at the top."""
    text = "clusters = a, b, c\na->b.enabled = TRUE\nb->a.enabled = false\nb->a.topics = x\n" + top
    inputs = read(text)
    others = {"a->c", "b->c", "c->a", "c->b"} if top else set()
    assert set(inputs.flows) == {"a->b"} | others
    assert fates(inputs)["b->a.topics"] == (Fate.NOT_NEEDED, "b->a is not enabled, so it is left out")


def test_which_clusters_are_read_and_written() -> None:
    inputs = read(TWO)
    ends = {alias: (cluster.is_source, cluster.is_destination) for alias, cluster in inputs.clusters.items()}
    assert ends == {"a": (True, False), "b": (False, True)}


def test_aliases_with_dots_and_aliases_that_begin_alike() -> None:
    inputs = read(
        "clusters = us, us.west\nus.bootstrap.servers = u:1\nus.west.bootstrap.servers = w:1\n"
        "us->us.west.enabled = true\nus->us.west.topics = t\nus.west.client.id = w\n"
    )
    assert inputs.flows["us->us.west"].settings["topics"].value == "t"
    assert inputs.clusters["us.west"].settings["", "client.id"].value == "w"
    assert inputs.clusters["us"].settings["", "bootstrap.servers"].value == "u:1"


def test_names_of_earlier_versions() -> None:
    inputs = read(f"{TWO}a->b.topics.blacklist = old\na->b.groups.blacklist = og\nconfig.properties.blacklist = oc\n")
    settings = inputs.flows["a->b"].settings
    assert {settings[name].value for name in ("topics.exclude", "groups.exclude", "config.properties.exclude")} == {
        "old", "og", "oc",
    }  # fmt: skip


def test_if_both_names_are_there_todays_counts() -> None:
    inputs = read(f"{TWO}a->b.topics.blacklist = old\na->b.topics.exclude = new\n")
    assert inputs.flows["a->b"].settings["topics.exclude"].value == "new"
    assert fates(inputs)["a->b.topics.blacklist"] == (Fate.DECIDE, "differs from line 6, which was taken")


def test_what_is_not_there_though_its_readme_says_so() -> None:
    fate, why = fates(read(f"{TWO}a->b.sync.group.offsets = true\nemit.heartbeats = false\n"))[
        "a->b.sync.group.offsets"
    ]
    assert fate is Fate.NOT_NEEDED
    assert "sync.group.offsets.enabled" in why


@pytest.mark.parametrize(
    ("line", "fate", "why"),
    [
        ("consumer.isolation.level = read_committed", Fate.NOT_NEEDED, "ignores it at the top"),
        ("request.timeout.ms = 5", Fate.NOT_NEEDED, "ignores it at the top"),
        ("a.topics = x", Fate.NOT_NEEDED, "ignores it here"),
        ("a.plugin.path = x", Fate.NOT_NEEDED, "Kafka Connect"),
        ("a->b.client.id = x", Fate.DECIDE, "belong to a cluster"),
        ("a->c.topics = x", Fate.DECIDE, "no such flow"),
        ("a.some.thing = x", Fate.DECIDE, "unknown"),
        ("a->b.some.thing = x", Fate.DECIDE, "unknown"),
        ("topic.exclude = x", Fate.DECIDE, "is topics.exclude meant?"),
        ("offset.storage.topic = x", Fate.NOT_NEEDED, "no Kafka Connect"),
        ("rest.extension.classes = com.example.X", Fate.DECIDE, "no Java class"),
    ],
)
def test_where_a_key_belongs(line: str, fate: Fate, why: str) -> None:
    found = fates(read(f"{TWO}{line}\n"))[line.split(" ")[0]]
    assert found[0] is fate
    assert why in found[1]


def test_providers() -> None:
    assert read(f"{TWO}config.providers.v.class = com.example.Vault\n").providers == {"v": "com.example.Vault"}


@pytest.mark.parametrize(
    "text", ["", "clusters = a, a\n", "clusters =\n", "clusters = a, b\n", "clusters = a, b\na->b.enabled = 1\n"]
)
def test_what_is_no_such_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read(text)
