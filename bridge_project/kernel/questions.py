"""Ask the person at the terminal."""

import sys


def agrees(question: str) -> bool:
    """Ask yes or no. Only `y` and `yes` agree, no other answer and no end of input."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
