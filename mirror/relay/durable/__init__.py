"""Keeps the state that outlives every process: writes it to the internal topic, and checks it against the clusters."""
