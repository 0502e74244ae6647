"""The status page at ``/``: its HTML is made here, and a script keeps it up to date in the browser."""
