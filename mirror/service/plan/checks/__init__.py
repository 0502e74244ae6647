"""The checks: pure functions of the facts. Each finding belongs to a line of ``mirror.foretold`` (P01, P02, ...), which
the docstrings name."""
