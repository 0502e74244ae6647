"""``offsets: mapped``: copies get offsets of their own at the destination, and a map says which."""
