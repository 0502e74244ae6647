"""``mirror start``, ``mirror stop`` and ``mirror restart``."""
