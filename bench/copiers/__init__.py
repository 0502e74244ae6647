"""The systems that are measured: a byte relay, mirror, MirrorMaker 1 and MirrorMaker 2."""
