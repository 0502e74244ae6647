"""The clusters of a run, and the data in them."""
