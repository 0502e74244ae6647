"""Offsets without a record at the source: verified there, and filled at the destination."""
