"""Changes a broker's segment files while it runs. The broker serves their content as it is (sendfile), and notices
nothing."""

from pathlib import Path

from chaos.errors import ChaosError
from chaos.play.sides import Side

__all__ = ["flip"]


def flip(side: Side, topic: str, index: int, batch: bytes, bit: int) -> None:
    """Flips a bit of a batch in the log of the partition's leader on disk.

    Args:
        side: the cluster.
        topic: name of the topic.
        index: number of the partition.
        batch: all bytes of the batch, by which it is found.
        bit: number of the bit within the batch.

    Raises:
        ChaosError: the log does not have this batch.
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
