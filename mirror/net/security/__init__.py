"""How connections are protected: TLS, and authentication by SASL."""
