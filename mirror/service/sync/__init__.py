"""Keeps consumer groups' offsets and topics' ACLs at the destination in step with the source's."""
