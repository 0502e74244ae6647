"""``mirror trace``."""
