"""The path of every batch: what is done for each record set, request and answer, in two forms."""
