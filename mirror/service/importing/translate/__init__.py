"""Single values in our notation. Pure."""
