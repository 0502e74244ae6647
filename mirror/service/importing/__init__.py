"""``mirror config import``: reads a configuration of MirrorMaker 2, writes one for the mirror, and says what became of
each key."""
