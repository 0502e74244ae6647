"""``mirror offsets``: translates offsets of one side into those of the other."""
