"""Run the forwarder as one file on a machine other than the bridge's (D47).

    python3 producer.py --spool DIR --print-hooks         # what to add to the agent's settings file
    python3 producer.py --spool DIR --print-hooks qwen    # of another agent than Claude Code
    python3 producer.py --spool DIR --url https://HOST:8443 --token-file F --pin HEX      # forwards
    python3 producer.py --spool DIR --status              # what waits there

`python -m hooks_app.producer producer.py` makes that file of this module and those that it imports:
Python 3.9 or newer, standard library only.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from hooks_app.producer.agents import AGENTS, CLAUDE
from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.https_sender import HttpsSender
from hooks_app.producer.shell_command import hooks_text, write_hook_scripts
from hooks_app.producer.spool import spool_status


def main() -> None:
    command = argparse.ArgumentParser(description="Forwards an agent's hooks to a bridge.")
    add = command.add_argument
    add("--spool", type=Path, required=True, help="directory that the hook command writes to")
    add("--url", help="https://HOST:PORT of the bridge")
    add("--token-file", type=Path, help="file with the bridge's hook token")
    pin = "SHA-256 of the bridge's public key, in hex (without: the system's authorities decide)"
    add("--pin", default="", help=pin)
    hooks = "make the spool, print what belongs into an agent's settings file, and end"
    add("--print-hooks", nargs="?", const=CLAUDE, choices=AGENTS, metavar="AGENT", help=hooks)
    add("--status", action="store_true", help="print what waits in the spool, and end")
    given = command.parse_args()
    spool = Path(os.path.abspath(given.spool))
    if given.print_hooks:
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_hook_scripts(spool)
        sys.stdout.write(hooks_text(AGENTS[given.print_hooks], str(spool)))
        return
    if given.status:
        sys.stdout.write(json.dumps(spool_status(spool), indent=2, ensure_ascii=False) + "\n")
        return
    if not given.url or not given.token_file:
        command.error("--url and --token-file are needed to forward")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        sender = HttpsSender(given.url, given.token_file, given.pin)
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        command.error(str(error))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Forwarder(spool, sender).run_forever(stop)
