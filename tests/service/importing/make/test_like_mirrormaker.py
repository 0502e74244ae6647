"""The topics that an imported flow selects are those that MirrorMaker 2 itself would copy: asked of its own classes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirror.sandbox.kafka import jars
from tests.service.importing import java
from tests.service.importing.importing import TWO, imported, loaded

pytestmark = pytest.mark.long
NAMES = [
    "orders", "orders.v1", "orders-v1", "payments", "payments.eu", "a.orders", "b.orders", "b.a.orders", "c.orders",
    "b-orders", "b_orders", "x.internal", "x-internal", "x_internal", "internal", "mm2-offsets.a.internal",
    "mm2-offset-syncs.b.internal", "mm2-offset-syncs_b_internal", "b.checkpoints.internal", "b_checkpoints_internal",
    "__consumer_offsets", "__x", "x.replica", "replica", "heartbeats", "b.heartbeats", "b_heartbeats", "secret",
    "secret.x", "Orders", "-", "_",
]  # fmt: skip
OLD = r"topics.exclude = .*[\\-\\.]internal, .*\\.replica, __.*"
"""The default of versions before 4.0; as the default, or written down, it shows which version the input is for."""
NEW = r"topics.exclude = mm2.*\\.internal, .*\\.replica, __.*"
CASES = [
    "",
    "topics = orders.*, payments",
    "topics = .*\ntopics.exclude = secret.*",
    "topics = .*\ntopics.exclude =",
    "topics = (orders,payments)[.].*",
    OLD,
    NEW,
    r"topics.exclude = \\Qsecret.x\\E, [Oo]rders" + "\nreplication.policy.separator = _",
    f"replication.policy.separator = -\n{OLD}",
    f"replication.policy.separator = _\n{NEW}",
]
VERSIONS = ("4.3.0", "3.9.2")


@pytest.fixture(scope="module", params=VERSIONS)
def mirrormaker(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """The version, and a JVM with MirrorMaker 2 of it."""
    with java.running(jars.classpath_of([("org.apache.kafka", "connect-mirror", request.param)])) as found:
        yield request.param, found


@pytest.mark.parametrize("policy", ["DefaultReplicationPolicy", "IdentityReplicationPolicy"])
@pytest.mark.parametrize("case", CASES)
def test_the_same_topics(mirrormaker: tuple[str, Any], case: str, policy: str, tmp_path: Path) -> None:
    """
    1. MirrorMaker 2 copies a topic that its filter selects, that is not internal, and that did not come from the
       destination. It copies heartbeats besides; they are left out here.
    2. Before 4.0, it takes all names that end in internal for internal; since then, only its own. If the input does not
       show which version it is for, all of these names are left out.
    """
    version, classes = mirrormaker
    text = f"{TWO}{case}\nreplication.policy.class = org.apache.kafka.connect.mirror.{policy}\n"
    flow = loaded(tmp_path, imported(tmp_path, text).text).flows["a->b"]
    properties = classes.java.util.Properties()
    properties.load(classes.java.io.ByteArrayInputStream((tmp_path / "mm2.properties").read_bytes()))
    given = classes.java.util.HashMap(properties)
    given.put("source.cluster.alias", "a")
    topics = classes.org.apache.kafka.connect.mirror.DefaultTopicFilter()
    naming = getattr(classes.org.apache.kafka.connect.mirror, policy)()
    for each in (topics, naming):
        each.configure(given)
    theirs = [
        name
        for name in NAMES
        if topics.shouldReplicateTopic(name)
        and not naming.isInternalTopic(name)
        and not naming.isHeartbeatsTopic(name)
        and not came_from(naming, name, "b")
    ]
    ours = [name for name in NAMES if flow.selects(name)]
    ends = tuple(f"{mark}internal" for mark in (".", "-", *("_" * ("= _" in case))))
    if NEW in case and version == "3.9.2":  # a list for the other version
        ours = [name for name in ours if not name.endswith(ends)]
    elif OLD not in case and NEW not in case and version == "4.3.0":
        assert [name for name in ours if name.endswith(ends)] == []
        theirs = [name for name in theirs if not name.endswith(ends)]
    assert ours == theirs


def came_from(naming: Any, name: str, alias: str) -> bool:
    """As ``MirrorSourceConnector.isCycle`` has it: one of the prefixes is the destination's."""
    source = naming.topicSource(name)
    if source is None:
        return False
    if source == alias:
        return True
    upstream = naming.upstreamTopic(name)
    return upstream is not None and upstream != name and came_from(naming, upstream, alias)
