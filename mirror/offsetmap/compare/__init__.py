"""Compares both logs and finds which batch is a copy of which."""
