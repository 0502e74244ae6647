"""``make soak``: runs a mirror at a steady load, restarts a worker and changes the configuration again and again."""
