"""The status page at ``/``: made here, kept live in the browser."""
