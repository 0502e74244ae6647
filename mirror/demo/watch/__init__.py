"""The programs that the demo starts, and what it reads of them."""
