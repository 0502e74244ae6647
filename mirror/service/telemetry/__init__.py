"""Everything that the service reports about itself: metrics, status, readiness, log lines."""
