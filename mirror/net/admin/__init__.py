"""Requests about what lies beside the logs: consumer groups and their offsets, ACLs."""
