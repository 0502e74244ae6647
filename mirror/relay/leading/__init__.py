"""The offsets before a source's first record: filled at the destination, and deleted again."""
