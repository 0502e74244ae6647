"""A mirror that runs, and a configuration that somebody is editing."""

from pathlib import Path

import pytest

from mirror.cli.options import Running, mirror_of
from mirror.service.exits import EXIT_CONFIG


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A file that is no configuration."""
    path = tmp_path / "mirror.yaml"
    path.write_text("flows: [")
    return path


def test_a_wrong_file_is_in_nobody_s_way_if_the_address_is_known(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``mirror status`` and ``mirror pause`` are needed most when something is wrong."""
    assert mirror_of(wrong, "127.0.0.1:9644", "west->east") == Running(("127.0.0.1", 9644), {}, "")
    said = capsys.readouterr().err
    assert str(wrong) in said
    assert "the mirror at 127.0.0.1:9644 is asked all the same" in said


def test_without_its_address_the_way_out_is_named(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        mirror_of(wrong, None, "")
    assert ended.value.code == EXIT_CONFIG
    assert "--at" in capsys.readouterr().err
