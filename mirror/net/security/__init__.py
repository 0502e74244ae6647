"""Protection of connections: TLS, and authentication by SASL."""
