"""Which topics are mirrored, into which, and what of them may change."""
