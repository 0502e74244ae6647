"""Admin requests that do not concern a partition's log: consumer groups and their offsets, configs, ACLs."""
