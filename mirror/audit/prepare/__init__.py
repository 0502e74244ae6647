"""Fixes topics, bounds and tasks of an audit before anything is read."""
