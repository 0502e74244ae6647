"""Log lines: their form, their number, and where they go."""
