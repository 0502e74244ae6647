"""What is next, with commands that can be pasted."""

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from mirror.cli import main
from mirror.service.commands import Commands
from mirror.service.cutover.certificate import Audit, certificate, group_data
from mirror.service.cutover.next_steps import after_cutover, after_reverse
from tests.service.cutover.worlds import SUBJECT, group, row

HERE = Commands(program="mirror", config="/m.yaml", at="127.0.0.1:1", flow="west->east")


def test_after_a_cutover() -> None:
    """An exact flow has a way back; one that maps has other offsets, and perhaps other names."""
    data = certificate(
        SUBJECT, [row()], program="1", exact=True, audit=Audit("identical", 0), groups=[group_data(group())],
        not_covered=["other"], stood_still_s=1.0,
    )  # fmt: skip
    told = "\n".join(after_cutover(data, HERE, "e:9092", Path("/var/a b")))
    assert "`mirror pause -c /m.yaml --at 127.0.0.1:1 --flow 'west->east' --all`" in told
    assert "`mirror cutover -c /m.yaml --at 127.0.0.1:1 'west->east' --reverse --out '/var/a b'`" in told
    assert "or stop the mirror, on every host that runs this flow, before anybody else" in told
    assert "bootstrap.servers=e:9092; groups billing go on at the offsets that they had" in told
    assert "not moved, since the flow does not have them: other" in told
    assert HERE.rendered(told) == told, "it is rendered once"
    mapped = data | {"offsets": "mapped", "partitions": [{"topic": "orders", "into": "west.orders"}], "groups": []}
    told = "\n".join(after_cutover(mapped, HERE, "e:9092", Path("/var/a b")))
    assert "orders is west.orders" in told
    assert "no way back" in told
    assert "--reverse" not in told


def test_its_commands_are_taken() -> None:
    """By the command line, up to the file that is not there."""
    told = "\n".join(after_reverse(HERE, "east->west"))
    commands = [shlex.split(each) for each in re.findall(r"`(mirror [^`]+)`", told)]
    assert [words[1] for words in commands] == ["plan", "start", "cutover"]
    for words in commands:
        assert "cannot be read" in CliRunner().invoke(main, words[1:]).output
