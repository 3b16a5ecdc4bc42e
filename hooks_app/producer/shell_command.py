"""Write the hook command of the agent's settings, and its script (D47).

The command writes the agent's JSON to a file of the spool and returns. The file is complete when it
parses: the beginning of a JSON object is never itself a JSON object. So nothing has to be renamed
or marked, and a command that was killed half-way leaves a file that never parses.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from bridge_project.kernel.private_files import write_private_file
from bridge_project.kernel.process_note import NOTE_MARK

SPOOL_MAX_BYTES = 200 * 2**20
HOOK_SCRIPT = "hook.sh"
MOST_TRIES = 2000  # names for one process id: a try takes some microseconds
COMMAND_SECONDS = 10  # SPEC Hook producer configuration; SessionEnd would otherwise have 1.5
HOOK_MARK = " #bridge-hook"
# Event of the agent's settings file → matcher (None: the event takes none).
HOOK_MATCHERS: dict[str, str | None] = {
    "SessionStart": None,
    "SessionEnd": None,
    "PreToolUse": "*",
    "PostToolUse": "*",
    "PostToolUseFailure": "*",
    "PermissionRequest": "*",
    "UserPromptSubmit": None,
    "Stop": None,
    "StopFailure": None,
    "SubagentStop": None,
    "PreCompact": None,
    "Notification": None,
    "Elicitation": None,
    "ElicitationResult": None,
}


def quoted(path: str) -> str:
    """Quote a path for the shell."""
    return "'" + path.replace("'", "'\\''") + "'"


def hook_command(spool: str) -> str:
    """Return the shell command of an agent's settings: source the script.

    It prints nothing and exits 0, whatever the script's state: without the trap, dash would exit
    with 2 on a broken file, and 2 blocks the agent. The script ends the shell; if it does not, cat
    reads the agent's output, which would otherwise meet a broken pipe.
    """
    script = quoted(f"{spool}/{HOOK_SCRIPT}")
    return f"exec >/dev/null 2>&1;trap 'exit 0' 0;test -r {script}&&. {script};cat{HOOK_MARK}"


def hook_script(spool: str) -> str:
    """Return the script, which writes standard input into a new spool file.

    Before it stands a note of the agent's process (see process_note.py): its id and the directory
    of its settings, boot, and the state of the first process, which tells a pid namespace from
    others, and of the agent's.

    One process besides the shell, cat: the shell's own ``read`` takes a byte at a time. Below an
    agent that a bridge has started (AGENT_BRIDGE_SESSION) it writes nothing: each call would be
    reported twice.
    """
    return f"""\
# The bridge's hook: copies the event on standard input into a new file of the spool.
# Written by the bridge, which replaces it when it changes. It prints nothing and never fails.
if [ "$AGENT_BRIDGE_SESSION" ]; then
  cat # the bridge runs this agent itself, and has what it does from it
  exit 0
fi
umask 077
set -C # a redirection never overwrites a file that waits
written=
if cd {quoted(spool)} && [ ! -e full ]; then
  # The process id names the file. One that comes again, as in each new container, finds the name
  # taken.
  name=$$ tries=0
  case $CLAUDE_PID in
  '' | *[!0-9]*) agent=$PPID by=parent ;;
  *) agent=$CLAUDE_PID by=agent ;;
  esac
  set --
  for each in /proc/sys/kernel/random/boot_id /proc/1/stat /proc/$agent/stat; do
    [ -r $each ] && set -- "$@" $each
  done
  while [ ! $written ] && [ $tries -lt {MOST_TRIES} ]; do
    {{
      written=1
      printf '{NOTE_MARK}%s %s %s\n' $agent $by "${{CLAUDE_CONFIG_DIR:-$HOME/.claude}}"
      # LC_ALL=C spares cat the reading of locale files. On a full disk leave a mark; but an agent
      # that has just ended is no reason to lose its event.
      LC_ALL=C cat "$@" - || [ ! -r /proc/$agent/stat ] || {{
        rm -f $name
        echo >lost
        cat >/dev/null
      }}
    }} >$name
    tries=$((tries + 1)) name=$$.$tries
  done
  [ $written ] || echo >lost
  # Without a forwarder nobody empties the spool: one call in 257 measures it. A prime,
  # so that no rhythm of process ids avoids it.
  if [ $((($$ + tries - 1) % 257)) = 0 ]; then
    set -- $(du -sk .)
    [ $1 -gt {SPOOL_MAX_BYTES // 1024 - 4800} ] && echo >full
  fi
fi
[ $written ] || cat # what is not written is read all the same
exit 0
"""


def write_hook_script(spool: Path) -> None:
    """Update the script in ``spool``, renamed into place. Raises OSError."""
    path, text = spool / HOOK_SCRIPT, hook_script(str(spool)).encode()
    with contextlib.suppress(OSError):  # one that cannot be read is written anew
        if path.is_file() and path.read_bytes() == text:
            return
    write_private_file(path, text)


def hook_entry(event: str, spool: str) -> dict[str, Any]:
    """Return the settings' entry for ``event`` (SPEC Hook producer configuration)."""
    matcher = HOOK_MATCHERS[event]
    hook = {"type": "command", "command": hook_command(spool), "timeout": COMMAND_SECONDS}
    return {"hooks": [hook]} if matcher is None else {"matcher": matcher, "hooks": [hook]}
