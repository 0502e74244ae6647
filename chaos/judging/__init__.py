"""Both sides compared at the end: record by record, with what was acknowledged, and up to a halt."""
