"""``mirror plan``: what would happen, asked of the real clusters before the first byte. Nothing is changed."""
