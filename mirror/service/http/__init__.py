"""The supervisor's HTTP server, and its client."""
