"""Topic ids, stored and shown. Other fields: ``entries/test_hostile.py``."""

import re
from pathlib import Path

import pytest

from mirror.offsetmap import fields
from mirror.offsetmap.fields import id_shown, id_text

SHOWN = [
    # org.apache.kafka.common.Uuid: METADATA_TOPIC_ID, and one with both characters that base64url has of its own.
    (bytes(15) + b"\x01", "AAAAAAAAAAAAAAAAAAAAAQ"),
    (bytes.fromhex("fbefbe" + "ff" * 12 + "00"), "----________________AA"),
]


@pytest.mark.parametrize(("topic_id", "shown"), SHOWN)
def test_for_people_as_kafkas_tools_print_it(topic_id: bytes, shown: str) -> None:
    assert id_shown(topic_id) == id_shown(id_text(topic_id)) == shown


def test_what_is_none() -> None:
    assert id_shown(None) == id_shown("") == ""
    assert id_shown("no id") == "no id"


def test_hexadecimal_is_for_what_is_stored() -> None:
    """Nobody else makes an id into text."""
    package = Path(fields.__file__).parents[1]
    found = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"(topic|source|destination)_id\.hex\(|known\.hex\(", path.read_text())
    ]
    assert found == ["offsetmap/fields.py"]
