"""The real producers that write while a fault happens, and records written by hand."""
