"""What the demo shows. Pure, but for the screen."""
