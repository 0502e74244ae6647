"""A member of a group whose topics change as soon as its seat is lost; for ``test_seat``, which starts it:
``python -m tests.service.group.seat BOOTSTRAP FIRST SECOND``. It prints what it is told: ``assigned TOPIC...``,
``lost``."""

import asyncio
import sys
from collections.abc import Iterable, Mapping

from mirror.relay.assignment import Committable, Key
from mirror.relay.partition.claim import Committed
from mirror.service.group.member import Membership
from mirror.service.worker_settings import GroupSettings
from tests.relay.stage.flows import Log

SESSION_TIMEOUT_MS = 1_500


class Telling:
    """Prints, and copies nothing."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None:
        print("assigned", *sorted(topic for topic, _ in keys), flush=True)

    async def revoke(self, keys: Iterable[Key], timeout_s: float) -> dict[Key, Committable]:
        return {}

    def lose(self, keys: Iterable[Key]) -> None:
        print("lost", flush=True)
        self.lost.set()


async def main(bootstrap: str, first: str, second: str) -> None:
    """Until it is killed."""
    telling = Telling()
    member = Membership(
        telling,
        GroupSettings(group_id=f"seat-{first}", session_timeout_ms=SESSION_TIMEOUT_MS),
        bootstrap=bootstrap,
        client_id="seat",
        drain_timeout_ms=1_000,
        refresh_topics_interval_ms=600_000,
        log=Log(),
    )
    member.start([first])
    await telling.lost.wait()
    member.subscribe([second])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
