"""Looks at brokers now and then, off the data path: ends, foreign records, how long they remember."""
