"""The status page of a real ``mirror run`` in a real browser.

``python -m tests.service.http.page.pictures`` makes docs/pictures of the same run.
"""

from pathlib import Path

import pytest

from mirror.sandbox import SandboxCluster
from tests.service.http.page.looking import looked_at, some_of_everything
from tests.service.http.page.test_document import Read
from tests.service.stage.running import address

pytestmark = pytest.mark.broker


def test_what_a_browser_shows(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A mirror with partitions that are copied, one that has halted and one that is paused.
    2. The browser runs the page's script, and asks again: there are lines, and rates. It complains of nothing.
    3. The text has what an operator looks for.
    """
    with some_of_everything(source_cluster, destination_cluster, topic_name, tmp_path) as process:
        where = address(process)
        found = looked_at(f"http://{where}/", tmp_path)
        assert found.complaints == []
        shown = Read(found.html)
        lines = shown.all("svg")
        assert {str(each["aria-label"]).partition(":")[0] for each in lines} == {"Lag", "Throughput"}
        assert all(len(str(each["points"]).split()) > 1 for each in shown.all("polyline"))
        for said in (
            "ready", "1 halted", "1 paused", "3 active", f"{topic_name}-halts-0 source->destination : ", "Remedy: ",
            f"Paused by an operator {topic_name}-paused-0", "B/s, ", "all batches copied as they are", "in group",
        ):  # fmt: skip
            assert said in shown.words, said
