"""Spark: sessions, the data source, the joins."""
