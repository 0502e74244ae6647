"""The parts of the audit that run on Spark: sessions, the data source, the joins."""
