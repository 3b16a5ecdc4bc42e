"""Ask the bridge of this container for its health, over TLS and with the pin.

It runs in the bridge's directory, with the bridge's settings.
"""  # noqa: INP001 - a file for an image, no package

import os
import sys

sys.path.insert(0, os.getcwd())

from bridge_project.kernel.config import ConfError, load
from bridge_project.operations.doctor import snapshot


def main() -> None:
    try:
        seen = snapshot.take(load())
    except ConfError as error:
        sys.exit(str(error))
    if seen.health is None:
        sys.exit(seen.trouble)
    if seen.health.status != 200:
        sys.exit(f"{seen.health.status} {seen.health.body}")


if __name__ == "__main__":
    main()
