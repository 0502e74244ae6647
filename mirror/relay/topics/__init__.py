"""The mirrored topics: their counterparts, their configs, and changes to both."""
