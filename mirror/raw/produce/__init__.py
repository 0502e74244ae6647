"""What a raw producer is made of."""
