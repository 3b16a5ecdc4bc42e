#!/usr/bin/env python
"""Run Django's command line, with one-line answers to wrong settings."""

from __future__ import annotations

import errno
import os
import sys

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")
    try:
        import django  # noqa: F401

        from bridge_project.kernel.config import ConfError
    except ImportError as error:
        text = "Use .venv/bin/python; `make run` makes it, with what the bridge needs."
        print(f"{error}. {text}", file=sys.stderr)
        return 1
    except ValueError as error:
        # ConfError cannot be imported when the settings, read at import, are wrong
        print(f"Settings: {error}", file=sys.stderr)
        return 1
    from django.core.management import execute_from_command_line
    from django.db import OperationalError

    from bridge_project.kernel.data_files import NotInPlace

    try:
        execute_from_command_line(_arguments(sys.argv))
    except ConfError as error:
        print(f"Settings: {error}", file=sys.stderr)
        return 1
    except OperationalError as error:
        if isinstance(error.__cause__, NotInPlace):
            print(f"{error}. `make run` makes the first one.", file=sys.stderr)
        else:
            print(f"The database cannot be used: {error}".strip().splitlines()[0], file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        print(f"{error.filename or 'A file'} cannot be written: {error.strerror}.", file=sys.stderr)
        return 1
    return 0


def _arguments(given: list[str]) -> list[str]:
    """Rename `install_hooks --settings`, which Django would take for its own (D43)."""
    if given[1:2] != ["install_hooks"]:
        return given
    return [
        "--settings-file" + word[len("--settings") :]
        if word.split("=")[0] == "--settings"
        else word
        for word in given
    ]


if __name__ == "__main__":
    raise SystemExit(main())
