"""Both logs compared: which batch is a copy of which."""
