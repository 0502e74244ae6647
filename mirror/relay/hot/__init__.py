"""The path of every batch: the work for each record set, request and answer, in two forms."""
