"""A partition's log off the data path."""
