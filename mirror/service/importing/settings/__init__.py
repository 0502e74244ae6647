"""Tables: what becomes of each setting of MirrorMaker 2."""
