"""Reads one side's logs and returns them batch by batch. No Spark."""
