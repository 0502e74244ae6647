"""The path of every batch: the work for each record set, request and response. Some of it has a compiled form."""
