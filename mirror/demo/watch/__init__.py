"""The programs that the demo starts, and their output."""
