"""``mirror audit explain``: the two batches at one offset, side by side."""
