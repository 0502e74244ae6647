"""Readers of the input: MirrorMaker 2's own file, and Strimzi's resource."""
