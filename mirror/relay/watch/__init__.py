"""Looks at brokers now and then, off the data path: log ends, foreign records, how long brokers remember producers."""
