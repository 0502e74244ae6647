"""What the service says of itself: metrics, status, readiness, reports."""
