"""Compares both sides at the end of a stage: record by record, with the acknowledged records, and up to a halt."""
