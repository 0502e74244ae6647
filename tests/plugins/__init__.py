"""What pytest does for these tests beyond its own: failures at once, and what is left to the night."""
