"""Changes a broker's segment files while it runs: it serves what is in them (sendfile), and notices nothing."""

from pathlib import Path

from chaos.errors import ChaosError
from chaos.play.sides import Side

__all__ = ["flip"]


def flip(side: Side, topic: str, index: int, batch: bytes, bit: int) -> None:
    """Flip a bit of a batch, in the leader's log on disk.

    Raises:
        ChaosError: the batch is not there.
    """
    folder = side.leader(topic, index).data_dir / f"{topic}-{index}"
    for path in sorted(folder.glob("*.log")):
        at = path.read_bytes().find(batch)
        if at >= 0:
            _flip(path, at + (bit >> 3), 1 << (bit & 7))
            return
    raise ChaosError(f"no such batch in {folder}")


def _flip(path: Path, at: int, mask: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))
