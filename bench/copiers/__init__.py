"""The systems that are measured: a byte relay, the mirror, MirrorMaker 1 and 2."""
