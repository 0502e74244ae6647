"""Several flows in one service: each flow in a worker, each at the supervisor, and what a reload changes."""
