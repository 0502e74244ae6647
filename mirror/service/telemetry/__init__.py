"""The service's reports on itself: metrics, status, readiness, log lines."""
