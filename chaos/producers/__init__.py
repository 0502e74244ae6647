"""The real producers that write while a fault happens, and functions that write single records or batches."""
