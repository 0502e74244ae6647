"""The records behind a batch's header: opens batches, cuts and rewrites them, and builds new ones."""
