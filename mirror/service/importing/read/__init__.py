"""What can be read: MirrorMaker 2's own file, and Strimzi's resource."""
