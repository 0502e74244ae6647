"""Batches that have other bytes than the source's for a cause: log cleaners, or the mirror's own deep path. Pure."""
