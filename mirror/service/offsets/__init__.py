"""``mirror offsets``: which offset is which on the other side."""
