"""The checks: pure functions of what was found, one for each line of ``mirror.foretold``."""
