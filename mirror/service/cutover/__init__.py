"""``mirror cutover``: moves producers and consumers over to the destination, and prepares the way back."""
