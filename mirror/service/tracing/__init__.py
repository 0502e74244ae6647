"""Traces one partition of a running flow for a while: `mirror trace`."""
