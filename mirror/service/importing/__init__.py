"""``mirror config import``: reads a configuration of MirrorMaker 2, writes ours, and accounts for each key."""
