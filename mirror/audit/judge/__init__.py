"""From rows that differ to findings. Pure."""
