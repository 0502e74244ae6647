"""What outlives every process: written to the internal topic, and held against what is there."""
