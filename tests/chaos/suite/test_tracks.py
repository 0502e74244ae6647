"""Pieces of work side by side: each done once, by processes that end with the one that began them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.suite.tracks import Say, side_by_side
from tests.sandbox.support import eventually

PIECES = [f"piece-{number}" for number in range(9)]


def tell(pieces: Iterator[str], say: Say) -> None:
    """Says who does what."""
    for piece in pieces:
        say((os.getpid(), piece))


def stumble(at: str, pieces: Iterator[str], say: Say) -> None:
    """Ends without a word at one of them."""
    for piece in pieces:
        if piece == at:
            sys.exit(3)
        say((os.getpid(), piece))


def hang(folder: Path, pieces: Iterator[str], say: Say) -> None:
    """Never comes to an end; leaves a file when it has to, another when it is told to in the usual way."""
    try:
        (folder / f"{os.getpid()}.begun").touch()
        time.sleep(600)
    finally:
        (folder / f"{os.getpid()}.tidied").touch()


def test_each_piece_is_done_once() -> None:
    """Handed out in their order, to no more processes than there are pieces."""
    heard: list[tuple[int, str]] = []
    side_by_side(tell, PIECES, 2, heard.append)
    assert sorted(piece for _, piece in heard) == PIECES
    assert os.getpid() not in {pid for pid, _ in heard}
    heard.clear()
    side_by_side(tell, PIECES[:1], 2, heard.append)
    assert [piece for _, piece in heard] == PIECES[:1]


def test_one_that_fails() -> None:
    """It is named; the others go on."""
    heard: list[tuple[int, str]] = []
    with pytest.raises(ChaosError, match=r"track \d ended with exit code 3"):
        side_by_side(partial(stumble, PIECES[2]), PIECES, 2, heard.append)
    assert sorted(piece for _, piece in heard) == PIECES[:2] + PIECES[3:]


def test_an_error_of_the_listener_ends_them() -> None:
    """It is not taken for a track's end."""

    def full(_: object) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        side_by_side(tell, PIECES, 2, full)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_they_end_with_the_one_that_began_them(how: signal.Signals, tmp_path: Path) -> None:
    """And tidy up first: each ends its brokers."""
    code = (
        "from functools import partial; from pathlib import Path; from chaos.suite.tracks import side_by_side\n"
        "from tests.chaos.suite.test_tracks import PIECES, hang\n"
        f"if __name__ == '__main__': side_by_side(partial(hang, Path({str(tmp_path)!r})), PIECES, 2, print)\n"
    )
    program = tmp_path / "program.py"
    program.write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen([sys.executable, program], env=environment, stderr=subprocess.DEVNULL)
    try:
        assert eventually(there(tmp_path, "*.begun", 2))
        owner.send_signal(how)
        owner.wait()
        assert eventually(there(tmp_path, "*.tidied", 2))
        assert eventually(lambda: not any(map(lives, tmp_path.glob("*.begun"))))
    finally:
        owner.kill()


def there(folder: Path, pattern: str, count: int) -> Callable[[], bool]:
    return lambda: len(list(folder.glob(pattern))) == count


def lives(begun: Path) -> bool:
    return Path(f"/proc/{begun.stem}").exists()
