"""Mistakes in one place of the file: entries for topics, topic configs, keys of other programs, YAML."""
