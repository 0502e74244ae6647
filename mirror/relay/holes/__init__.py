"""Offsets without a record at the source: believed, and filled at the destination."""
