"""What is compared: topics, bounds and tasks, fixed before anything is read."""
