"""``python -m mirror``: what the console script ``mirror`` does."""

from mirror.cli import main

if __name__ == "__main__":
    main(prog_name="mirror")
