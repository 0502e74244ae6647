"""Turns rows that differ into findings. Pure, except for ``mapped``, which reads the flow's offset map."""
