"""The data types of an audit, by who needs them. No I/O, and nothing is imported here."""
