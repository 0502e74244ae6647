"""What the principal may do with a cluster, by brokers of several versions."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from mirror.net.admin.operations import cluster_operations, operations_of


class Cluster:
    """Of which one broker answers."""

    def __init__(self, apis: dict[int, int], answer: Any) -> None:
        self.asked: list[Any] = []
        self.api_versions = {key: SimpleNamespace(most=most) for key, most in apis.items()}
        self.answer = answer

    async def control_of_any(self) -> Any:
        return self

    async def call(self, request: Any, *, version: int | None = None) -> Any:
        self.asked.append((request.API_KEY, version))
        return self.answer


NEW, OLD, OLDEST = {MetadataRequest.API_KEY: 13, DescribeClusterRequest.API_KEY: 1}, {3: 9}, {3: 7}


@pytest.mark.parametrize(
    ("apis", "codes", "error", "asked", "found"),
    [
        (NEW, {8, 10}, 0, [(60, None)], frozenset({"Describe", "DescribeConfigs"})),
        (NEW, set(), 0, [(60, None)], frozenset()),
        (NEW, {8}, 31, [(60, None)], None),
        (OLD, {7}, 0, [(3, 10)], frozenset({"Alter"})),
        (OLD, -(1 << 31), 0, [(3, 10)], None),
        (OLDEST, {7}, 0, [], None),
    ],
)
async def test_operations(apis: dict[int, int], codes: Any, error: int, asked: list[Any], found: Any) -> None:
    cluster: Any = Cluster(apis, SimpleNamespace(authorized_operations=codes, error_code=error))
    assert await cluster_operations(cluster) == found
    assert cluster.asked == asked


def test_names() -> None:
    assert operations_of({3, 4, 12, 99}) == frozenset({"Read", "Write", "IdempotentWrite"})
    assert operations_of(None) is None
    assert operations_of(-(1 << 31)) is None
