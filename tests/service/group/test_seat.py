"""A seat in the group that is lost while the flow's topics change, at a real broker."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from mirror.sandbox import SandboxCluster
from tests.audit.clusters import create

pytestmark = pytest.mark.broker
FROZEN_S = 1.0
"""After the loss, so that the topics change while the next seat is asked for."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SandboxCluster]:
    """Sessions may be short."""
    with SandboxCluster(name="source", properties={"group.min.session.timeout.ms": "500"}, quick=True) as running:
        yield running


def test_topics_that_change_while_the_seat_is_lost(cluster: SandboxCluster, topic_name: str) -> None:
    """The broker freezes, the seat is lost, the topics change: the process lives, and has the new topic in the end."""
    (broker,) = cluster.brokers
    first, second = f"{topic_name}-1", f"{topic_name}-2"
    for topic in (first, second):
        create(cluster, topic)
    command = [sys.executable, "-m", "tests.service.group.seat", cluster.bootstrap_servers, first, second]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        assert member.stderr is not None
        try:
            assert member.stdout.readline() == f"assigned {first}\n"
            broker.pause()
            assert member.stdout.readline() == "lost\n"
            time.sleep(FROZEN_S)
            assert member.poll() is None, member.stderr.read()
            broker.resume()
            told = member.stdout.readline()
            while told in (f"assigned {first}\n", "lost\n"):  # with the topics of before, to begin with
                told = member.stdout.readline()
            assert told == f"assigned {second}\n", member.stderr.read()
        finally:
            broker.resume()
            member.kill()
