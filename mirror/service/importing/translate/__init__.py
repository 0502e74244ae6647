"""Translates single values into the mirror's notation. Pure."""
