"""Looks at brokers regularly, off the data path: log ends, foreign records, how long brokers remember producers."""
