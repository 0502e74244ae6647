"""Which batches are opened before they are named, and what is asked of them."""

from collections.abc import Set
from typing import Any

import pytest

from mirror.audit.model.places import Side
from tests.audit.logs import Logs, plain


@pytest.mark.parametrize("cleaners", [frozenset(), frozenset({Side.DESTINATION})])
def test_what_cleaners_have_taken_is_opened_without_digests(cleaners: Set[Side]) -> None:
    """It may be very much. Elsewhere, they say which record stands where."""
    asked: list[bool] = []

    class Asked(Logs):
        def records(self, *args: Any, digests: bool) -> Any:
            asked.append(digests)
            return super().records(*args, digests=digests)

    source = plain(40, 5)
    in_pieces = [*source[:10], source[10][:2], source[10][2:], *source[11:]]
    Asked(source, in_pieces, width=1_000, cleaners=cleaners).audit()
    assert asked
    assert set(asked) == {not cleaners}
