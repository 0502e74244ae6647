"""Copies that begin later than their source."""
