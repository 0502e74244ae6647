"""The output of the demo. Pure, except for the screen."""
