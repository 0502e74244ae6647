DISTRIBUTION = "kafka-shallow-mirror"
"""What pip calls this; ``mirror`` alone is somebody else's."""
