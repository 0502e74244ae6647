"""Offsets without a record at the source: verified at the source, and filled at the destination."""
