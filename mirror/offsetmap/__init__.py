"""The internal topic, and the map of ``offsets: mapped`` from source offsets to destination offsets."""
