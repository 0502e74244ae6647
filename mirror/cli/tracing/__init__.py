"""`mirror trace`."""
