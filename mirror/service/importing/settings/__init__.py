"""What becomes of each setting of MirrorMaker 2: tables, no code."""
