"""Runs in which batches are opened: the deep path, other codecs, append times, old formats, records too large."""
