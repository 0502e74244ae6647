"""Share groups (KIP-932): reads and sets their start offset in each partition.

A broker does not tell which records behind the start offset are acknowledged already, and it moves the start offset
late. But it tells how many records a group has not finished with (KIP-1226). If that is 0, the group is at the log's
end, whatever its start offset.
"""

import asyncio
from collections.abc import Iterable, Mapping

from mirror.net.admin.groups import CommittedOffset, Groups, Key, Offsets
from mirror.net.errors import ConnectionLost, NetworkError, Refused
from mirror.net.logs.leader_requests import LATEST, list_offset
from mirror.wire.errors import ErrorCode
from mirror.wire.primitives import MalformedFrame
from mirror.wire.share import (
    ALTER_VERSIONS,
    DESCRIBE_VERSIONS,
    ShareOffsets,
    alter_request,
    describe_request,
    read_altered,
    read_described,
)
from mirror.wire.versions import ALTER_SHARE_KEY, API_NAMES, DESCRIBE_SHARE_KEY


class ShareGroups(Groups):
    """The share groups of one cluster. Start offsets take the place of committed offsets."""

    async def commit(self, group: str, offsets: Mapping[Key, CommittedOffset]) -> dict[Key, int]:
        """Sets the start offsets of a share group without members. There is one try.

        Returns:
            The error code of each partition; 0: set. If the group has members, it is NON_EMPTY_GROUP.

        Raises:
            Unsupported: the broker does not know the request.
            NetworkError: as ``Groups.commit``.
        """
        failed: dict[str, NetworkError] = {}
        places = await self._places([group], failed)
        for error in failed.values():
            raise error
        (node_id,) = places
        body = alter_request(group, {key: each.offset for key, each in offsets.items()})
        _, frame = await self._ask(node_id, ALTER_SHARE_KEY, ALTER_VERSIONS, body)
        try:
            code, _, codes = read_altered(frame)
        except MalformedFrame as problem:
            raise ConnectionLost(f"{self._cluster.name}: AlterShareGroupOffsets: {problem}") from problem
        return dict.fromkeys(offsets, code) if code else codes

    async def _fetch(self, node_id: int, groups: list[str]) -> dict[str, Offsets | NetworkError]:
        try:
            first = await self._described(node_id, groups)
            done = {key for row in first for key, start in row.starts.items() if not start.lag}
            ends = await self._ends(done)
            # The lag is asked for after the ends: a lag of 0 then means that all records before those ends are
            # finished.
            rows = await self._described(node_id, groups) if ends else first
        except NetworkError as error:
            return dict.fromkeys(groups, error)
        what = f"{self._cluster.name}: {API_NAMES[DESCRIBE_SHARE_KEY]}"
        found: dict[str, Offsets | NetworkError] = dict.fromkeys(
            groups, ConnectionLost(f"{what}: a group is missing in the answer")
        )
        for row in rows:
            if row.error and row.error != ErrorCode.GROUP_ID_NOT_FOUND:
                found[row.group] = Refused(f"{what} of group {row.group}", row.error, row.message)
            else:
                found[row.group] = {
                    key: CommittedOffset(start.offset if start.lag else max(start.offset, ends.get(key, 0)))
                    for key, start in row.starts.items()
                    if start.offset >= 0
                }
        return found

    async def _described(self, node_id: int, groups: list[str]) -> list[ShareOffsets]:
        version, frame = await self._ask(node_id, DESCRIBE_SHARE_KEY, DESCRIBE_VERSIONS, describe_request(groups))
        try:
            return read_described(version, frame)
        except MalformedFrame as problem:
            raise ConnectionLost(f"{self._cluster.name}: {API_NAMES[DESCRIBE_SHARE_KEY]}: {problem}") from problem

    async def _ends(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Returns the log ends of those of the partitions that have a leader."""
        known = [(key, leader) for key in keys if (leader := self._cluster.leader(*key)) is not None]
        asking = (list_offset(self._cluster, *key, leader, LATEST) for key, leader in known)
        return dict(zip((key for key, _ in known), await asyncio.gather(*asking), strict=True))

    async def _ask(self, node_id: int, key: int, versions: tuple[int, int], body: bytes) -> tuple[int, memoryview]:
        connection = await self._cluster.control(node_id)
        version = connection.version_of(key, versions, API_NAMES[key])
        return version, memoryview(await connection.ask(key, version, body, flexible=True))
