"""``mirror plan``: asks the real clusters what the mirror would do, before the first byte is copied. Nothing is
changed, unless ``--fix`` is given."""
