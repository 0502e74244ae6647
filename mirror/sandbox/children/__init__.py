"""Processes and ports that do not outlive their owner."""
