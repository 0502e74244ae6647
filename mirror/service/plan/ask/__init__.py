"""What is asked of the clusters. Nothing here judges, and nothing here changes anything."""
