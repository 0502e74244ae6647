"""The catalogue of events has all that is logged, and nothing else."""

import re

from tests.project.events_document import FILE, MEANINGS, document, logged

LISTED = [name for events in MEANINGS.values() for name in events]


def test_every_event_is_listed_once() -> None:
    assert sorted(LISTED) == sorted(logged())
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name in LISTED)


def test_the_document_is_the_one_that_the_list_makes() -> None:
    assert FILE.read_text() == document(), "python -m tests.project.events_document"


def test_events_of_variable_names_are_seen() -> None:
    """Those that one call logs under several names, and those whose name is an argument."""
    named = {"state_unusable", "state_not_read", "worker_failed", "flow_failed", "assigned", "topic_acls_not_synced"}
    assert named <= logged().keys()
