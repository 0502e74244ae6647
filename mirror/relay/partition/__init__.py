"""One partition's state, split by who may write it: cursor (fetching), queue (sending), claim (ownership)."""
