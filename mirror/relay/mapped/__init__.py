"""``offsets: mapped``: the destination's offsets are its own."""
