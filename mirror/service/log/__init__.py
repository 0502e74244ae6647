"""Log lines: their format, their rate limits, and where they are written."""
