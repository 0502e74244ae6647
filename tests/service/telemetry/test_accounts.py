"""What was replicated of a partition, over all of its owners: what was copied, whatever they could still tell."""

import random

import pytest

from mirror.service.telemetry import accounts
from mirror.service.telemetry.accounts import KEPT, Account, Stint, Totals


def stint(number: int, begun: int, position: int, **changes: int) -> Stint:
    usual = {"begun_at_s": number, "holes_from": begun, "inherited": -1, "records": position - begun}
    return Stint(number=number, begun=begun, position=position, **(usual | changes))


def records(*stints: Stint) -> int:
    account = Account()
    for each in stints:
        account.told("worker", each)
    return account.totals.records


def test_what_landed_between_two_owners() -> None:
    """It counts, whoever is heard first; where the next owner begins inside what the last one told, nothing does."""
    one, other = stint(1, 100, 150), stint(2, 163, 170)
    assert records(one, other) == records(other, one) == 70
    assert records(one, stint(2, 140, 170)) == 80, "lost at the destination and copied again"
    assert records(one, stint(2, -1, -1)) == 50, "not located yet"


def test_a_later_word_of_an_earlier_owner() -> None:
    """What it counted then was counted as between the two before: the sum does not change."""
    account = Account()
    account.told("a", stint(1, 100, 150))
    account.told("b", stint(2, 163, 170))
    account.told("a", stint(1, 100, 160))
    assert account.totals.records == 70


def test_what_another_machine_copied() -> None:
    """
    1. The first owner here goes on from what was committed: what landed behind that counts here.
    2. Another machine has the partition in between, and counts for itself up to what it committed.
    3. A committed offset above the position is no position.
    """
    assert records(stint(1, 100, 110, inherited=95)) == 15
    assert records(stint(1, 100, 110), stint(2, 503, 510, inherited=500)) == 20
    assert records(stint(1, 100, 110, inherited=300)) == 10


def test_holes_that_were_filled_between() -> None:
    """Markers at the end of what landed are no records; all of it may be markers."""
    account = Account()
    account.told("a", stint(1, 0, 10))
    account.told("b", stint(2, 20, 20, holes_from=17))
    assert account.totals == Totals(records=17, filled=3)
    assert records(stint(1, 0, 10), stint(2, 20, 20, holes_from=5)) == 10


def test_many_owners() -> None:
    """Of old stints only the sum is kept."""
    account = Account()
    for number in range(10 * KEPT):
        account.told(number % 3, stint(number, 10 * number + 2, 10 * number + 10))
    assert account.totals.records == 100 * KEPT - 2
    assert len(account._stints) == KEPT
    account.told(0, stint(0, 2, 10))
    assert account.totals.records == 100 * KEPT - 2, "told once more, much too late"


def told_at_random(chance: random.Random) -> tuple[int, int]:
    """
    A log grows under one owner after the other. Each tells now and then where it is, and its last word may be late, or
    never come; what is under way when it goes lands, or does not.

    Returns: records in the log at the end, and what the account says.
    """
    account, end = Account(), 0
    words: list[tuple[str, Stint]] = []
    for number in range(chance.randrange(1, 12)):
        begun, now = end, stint(number, end, end)
        for _ in range(chance.randrange(4)):
            end += chance.randrange(50)
            now = stint(number, begun, end)
            if chance.random() < 0.5:
                words.append((f"worker {number % 3}", now))
        if chance.random() < 0.7:
            words.append((f"worker {number % 3}", now))
        end += chance.randrange(5)
    words.append(("last", stint(99, end, end)))
    words.insert(0, ("first", stint(-1, 0, 0)))
    # Words of one owner stay in their order; owners that follow each other may be heard in another.
    for _ in range(len(words)):
        at = chance.randrange(1, len(words))
        if words[at - 1][1].number != words[at][1].number:
            words[at - 1], words[at] = words[at], words[at - 1]
    for worker, word in words:
        account.told(worker, word)
    return end, account.totals.records


@pytest.mark.parametrize("seed", range(200))
def test_at_random(seed: int) -> None:
    in_the_log, counted = told_at_random(random.Random(seed))
    assert counted == in_the_log


@pytest.fixture
def nobody_counts_what_lands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_between", lambda *_: Totals())


@pytest.mark.usefixtures("nobody_counts_what_lands_between")
def test_mutation_owners_alone() -> None:
    """Without what lands between two owners, the sums miss records."""
    found = [told_at_random(random.Random(seed)) for seed in range(50)]
    assert sum(counted < in_the_log for in_the_log, counted in found) > 20
