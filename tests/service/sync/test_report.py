"""What ``mirror sync`` prints."""

from pathlib import Path

from click.testing import CliRunner

from mirror.cli import main
from mirror.net.admin.acls import ALLOW, LITERAL, TopicAcl
from mirror.net.admin.groups import CommittedOffset
from mirror.service.sync.acls import AclsPlan
from mirror.service.sync.copies import DestinationPlace
from mirror.service.sync.plan import NO_GROUP, GroupPlan, GroupsPlan, GroupState, Move, WantedOffset
from mirror.service.sync.report import as_data, as_text, failed
from tests.service.config.loading import base


def moved(group: str, to: int, now: int, *, behind: bool = False, of: int = 1, committed: int = 0) -> GroupPlan:
    row = WantedOffset("orders", 0, 9, "orders", DestinationPlace(to, behind=behind))
    move = Move("orders", 0, CommittedOffset(to), now, of)
    return GroupPlan(group=group, rows=[row], moves=[move], carried=committed)


def stopped(group: str, state: GroupState, why: str, remedy: str = "", *, rows: bool = True) -> GroupPlan:
    plan = GroupPlan(
        group=group, kind="share", rows=[WantedOffset("orders", 0, 9, "orders", DestinationPlace(9))] if rows else []
    )
    plan.stop(state, why, remedy)
    return plan


PLANS = [
    moved("forward", 9, 4), moved("same", 9, 9), moved("ahead", 9, 12), moved("behind", 7, -1, behind=True),
    moved("merged", 9, 4, of=2), stopped("active", GroupState.ACTIVE, "it has members"),
    stopped("denied", GroupState.FAILED, "why not", "grant it", rows=False),
]  # fmt: skip
TEXT = """\
group    topic   partition  source  into    destination  there now
forward  orders  0          9       orders  9            4          would be committed
same     orders  0          9       orders  9            9          the same
ahead    orders  0          9       orders  9            12         further there: left alone
behind   orders  0          9       orders  7            -          would be committed, as far as it is copied
merged   orders  0          9       orders  9            4          would be committed, the least of 2 topics
active   orders  0          9       orders  -            -          it has members
denied   -       -          -       -       -            -          why not
denied: grant it
7 groups (1 failed, 1 active, 3 to move, 2 in step): nothing was committed; 3 offsets would be"""


def acl(name: str) -> TopicAcl:
    return TopicAcl(name, LITERAL, "User:u", "*", 3, ALLOW)


def test_groups() -> None:
    assert as_text(GroupsPlan(groups=PLANS), None, applied=False) == TEXT
    assert as_text(GroupsPlan(groups=[]), None, applied=False) == NO_GROUP
    done = as_text(GroupsPlan(groups=[moved("forward", 9, 4, committed=1)]), None, applied=True)
    assert done.endswith("4          committed\n1 group (1 in step): 1 offset committed")


def test_groups_that_are_not_there() -> None:
    """Each is named, also if no other one was found; and that there may be more."""
    found = GroupsPlan(
        groups=[moved("same", 9, 9)], absent={"biling": "no group of this name"}, unseen="there may be others"
    )
    lines = as_text(found, None, applied=True).splitlines()
    assert lines[-2:] == ["group biling: no group of this name", "there may be others"]
    found.groups = []
    assert as_text(found, None, applied=True).splitlines() == [NO_GROUP, *lines[-2:]]
    data = as_data(found, None, applied=True)
    assert (data["groups_absent"], data["groups_unseen"]) == (found.absent, found.unseen)
    assert not failed(found, None)


def test_acls() -> None:
    plan = AclsPlan(wanted=[acl("a"), acl("b")], lacking=[acl("b")], topics=1)
    assert as_text(None, plan, applied=False) == "+ User:u may Read b\n2 ACLs of 1 mirrored topic: 1 would be created"
    plan.created = 1
    assert as_text(None, plan, applied=True) == "  User:u may Read b\n2 ACLs of 1 mirrored topic: 1 created"
    assert as_text(None, AclsPlan(failed="no", remedy="do", off=False), applied=True) == "no; do"
    assert as_text(None, AclsPlan(failed="no authorizer", off=True), applied=True) == "no authorizer"
    assert as_text(None, AclsPlan(), applied=True).startswith("by the flow's internal topic, no topic has a copy")
    assert as_text(None, AclsPlan(topics=3), applied=True) == "0 ACLs of 3 mirrored topics: 0 created"


def test_both_for_programs() -> None:
    found = as_data(GroupsPlan(groups=PLANS), AclsPlan(wanted=[acl("b")], lacking=[acl("b")], topics=1), applied=False)
    assert [each["state"] for each in found["groups"]] == [
        "to_move", "in_step", "in_step", "to_move", "to_move", "active", "failed",
    ]  # fmt: skip
    assert [each["kind"] for each in found["groups"]] == ["classic"] * 5 + ["share"] * 2
    assert found["groups"][0]["offsets"] == [
        {
            "topic": "orders", "partition": 0, "source": 9, "into": "orders", "destination": 9, "there_now": 4,
            "note": "would be committed",
        }
    ]  # fmt: skip
    assert found["acls"] == {
        "wanted": 1, "missing": ["User:u may Read b"], "created": 0, "topics": 1, "authorizer": True, "failed": "",
        "remedy": "",
    }  # fmt: skip
    assert as_data(None, None, applied=True) == {"applied": True}


def test_what_fails() -> None:
    assert failed(GroupsPlan(groups=PLANS), None)
    assert not failed(GroupsPlan(groups=PLANS[:-1]), AclsPlan(failed="no authorizer", off=True))
    assert failed(None, AclsPlan(failed="no"))


def test_groups_that_are_not_known() -> None:
    """What is known is shown, and that it is not all."""
    found = GroupsPlan(groups=[moved("forward", 9, 4)], failed="broker 2 of west: no answer", remedy="see to it")
    assert failed(found, None)
    assert as_text(found, None, applied=False).endswith("\nbroker 2 of west: no answer; see to it")
    assert as_data(found, None, applied=False)["groups_failed"] == "broker 2 of west: no answer"
    assert as_data(GroupsPlan(groups=PLANS), None, applied=False)["groups_failed"] == ""
    nothing = GroupsPlan(groups=[], failed="broker 2 of west: no answer", remedy="see to it")
    assert as_text(nothing, None, applied=False) == "broker 2 of west: no answer; see to it"


def test_nothing_is_enabled(tmp_path: Path) -> None:
    """That is said, with the keys, before anything is asked."""
    config = tmp_path / "mirror.yaml"
    config.write_text(base())
    done = CliRunner().invoke(main, ["sync", "-c", str(config)])
    assert done.exit_code == 1
    assert "set sync.group.offsets.enabled or sync.topic.acls.enabled; --dry-run shows" in done.output
