"""The internal topic: created, read in full, written; and all of its entries that count."""
