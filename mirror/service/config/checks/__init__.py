"""Checks of single values in the file: entries for topics, topic configs, keys of other programs, YAML."""
