"""What a raw consumer is made of."""
