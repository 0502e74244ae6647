"""``python -m mirror.sandbox``: the same as ``mirror sandbox``."""

from .cli import sandbox

if __name__ == "__main__":
    sandbox(prog_name="python -m mirror.sandbox")
