"""The state of one partition, split by who may write it: cursor (fetching), queue (sending), claim (ownership)."""
