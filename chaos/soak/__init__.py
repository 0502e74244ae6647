"""``make soak``: the mirror at a steady load, its workers restarted and its configuration changed again and again."""
