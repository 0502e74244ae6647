"""The internal topic, and the map of ``offsets: mapped``: which source offset is which at the destination."""
