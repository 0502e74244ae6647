"""The capture itself, against a broker of today: it must still bring what the repository holds."""

from pathlib import Path
from typing import Any

import pytest

from tests.vectors.capture import VERSIONS, capture
from tests.vectors.test_vectors import INDEX


@pytest.mark.broker
def test_a_new_capture_holds_what_the_old_one_held(tmp_path: Path) -> None:
    """1. Capture the newest Kafka's vectors into an empty folder. 2. Compare names, errors, codecs and magics."""
    assert outline(capture(VERSIONS[0], tmp_path)) == outline(INDEX)
    assert sorted(outline(INDEX)) == sorted(path.name for path in tmp_path.glob("*.bin"))


def outline(index: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What stays from one capture to the next: on a busy machine a producer may cut its batches elsewhere."""
    kept = ("api", "version", "holds", "partitions", "codecs", "magics")
    return {
        entry["file"]: {"errors": sorted(entry["errors"]), **{name: entry.get(name) for name in kept}}
        for entry in index
        if entry["kafka"] == VERSIONS[0]
    }
