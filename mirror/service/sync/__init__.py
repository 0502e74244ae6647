"""Consumer groups' offsets and topics' ACLs at the destination, kept in step with the source's."""
