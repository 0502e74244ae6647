"""Finds, starts in the background, queries and stops the mirror of one configuration file on this machine."""
