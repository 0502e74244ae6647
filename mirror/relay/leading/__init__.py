"""The offsets before a source's first record."""
