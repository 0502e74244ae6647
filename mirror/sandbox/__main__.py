"""``python -m mirror.sandbox``: the same as ``mirror sandbox``."""

from mirror.sandbox.standing.cli import sandbox

if __name__ == "__main__":
    sandbox(prog_name="python -m mirror.sandbox")
