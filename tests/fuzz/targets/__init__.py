"""Everything that is fuzzed, by name."""

from tests.fuzz.source import Target
from tests.fuzz.targets import answers, contents, framing, old_formats, record_sets

TARGETS: dict[str, Target] = {
    "scan": Target(record_sets.scan_and_take),
    "up-conversion": Target(old_formats.up),
    "down-conversion": Target(old_formats.down),
    "decompression": Target(contents.decompress, most_bytes=contents.MOST_DECOMPRESSED),
    "rewriting": Target(contents.rewrite_records, most_bytes=contents.MOST_REWRITTEN),
    "fetch": Target(answers.fetch),
    "produce": Target(answers.produce),
    "framing": Target(framing.receive),
}

__all__ = ["TARGETS"]
