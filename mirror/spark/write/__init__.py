"""What the sink is made of."""
