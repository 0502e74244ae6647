"""Our settings of clusters and flows, made of what was read."""
