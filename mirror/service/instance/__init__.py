"""The mirror of one configuration file on this machine: found, started in the background, asked, and stopped."""
