"""Makes the mirror's settings of clusters and flows from the input."""
