"""The flows of a service: one flow in a worker, one flow at the supervisor, and reloads of the configuration."""
