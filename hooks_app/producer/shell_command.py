"""Write the hook command of the agent's settings, and its script (D47).

The command writes the agent's JSON to a file of the spool and returns. The file is complete when it
parses: the beginning of a JSON object is never itself a JSON object. So nothing has to be renamed
or marked, and a command that was killed half-way leaves a file that never parses.

The hook of a permission request may wait for a person's answer (D66), by a script of its own.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from bridge_project.kernel.private_files import write_private_file
from bridge_project.kernel.process_note import NOTE_MARK
from hooks_app.producer.agents import AGENTS, CLAUDE, COMMAND_SECONDS, OF_TOOLS, HookedAgent

SPOOL_MAX_BYTES = 200 * 2**20
HOOK_SCRIPT = "hook.sh"
ANSWER_SCRIPT = "answer.sh"
ANSWERS = "answers"  # directory of the FIFOs at which hooks wait
AWAY = "away"  # is there while the owner is away
MOST_TRIES = 2000  # names for one process id: a try takes some microseconds
ANSWER_SECONDS = 24 * 3600  # after which the agent ends a hook that waits
SPARE_SECONDS = 5  # for which an agent lets a hook live after it should have answered
BRIDGE_SECONDS = 3  # within which the bridge must have found a hook that waits
WATCH_SECONDS = 240  # of a hook that nobody sees: the bridge must have shown that it lives
HOOK_MARK = " #bridge-hook"


def quoted(path: str) -> str:
    """Quote a path for the shell."""
    return "'" + path.replace("'", "'\\''") + "'"


def hook_command(spool: str, script: str = HOOK_SCRIPT, called: str = "") -> str:
    """Return the shell command of an agent's settings: source the script.

    ``called``: which agent runs it, "" for Claude Code (see process_note.py).

    It prints nothing and exits 0, whatever the script's state: without the trap, dash would exit
    with 2 on a broken file, and 2 blocks the agent. The script ends the shell; if it does not, cat
    reads the agent's output, which would otherwise meet a broken pipe.
    """
    path, named = quoted(f"{spool}/{script}"), f"AGENT_BRIDGE_AGENT={called};" if called else ""
    return f"exec >/dev/null 2>&1;trap 'exit 0' 0;{named}test -r {path}&&. {path};cat{HOOK_MARK}"


def answer_command(spool: str, called: str = "") -> str:
    """Return the command of a permission request that may be answered by the bridge.

    Only descriptor 3 is the agent's: what the script means to say, and nothing else.
    """
    return hook_command(spool, ANSWER_SCRIPT, called).replace("exec ", "exec 3>&1 ", 1)


def answer_script(spool: str) -> str:
    """Return the script that reports a permission request, and waits for its answer.

    It waits at a FIFO that the bridge opens when it stores the event, and holds. An end of file (no
    bridge within BRIDGE_SECONDS, or one that has ended) means that there is no answer. The answer
    is a file, whole before the FIFO says so; who can delete it has it.

    It waits beside the dialog of an interactive program's own agent, and otherwise only while the
    owner is away; below a program that no person sits at, never. An agent that shows no dialog
    meanwhile does so some seconds later.
    """
    mode = """'"permission_mode":"off"'"""
    others = "\n".join(
        f"{pattern}) most={one.waits} ;;"
        for one in AGENTS.values()
        if one.answers and one.waits
        for pattern in [
            " | ".join(f"""{one.name}:*{mode}*'"tool_name":"{tool}"'*""" for tool in one.asking)
            or f"{one.name}[:/]*"
        ]
    )
    return f"""\
# The bridge's hook of a permission request: reports it, and waits for a person's answer.
# Written by the bridge, which replaces it when it changes. It prints such an answer, or nothing.
event=$(LC_ALL=C cat) why=away nonce= most= AGENT_BRIDGE_WAITS=
case $AGENT_BRIDGE_AGENT:$event in
{others}
[!:]*) why= ;;
*)
  case $CLAUDE_CODE_ENTRYPOINT:$event in
  sdk-*) why= ;; # nobody sits there: `claude -p`, an SDK
  *'"agent_id"'*) ;; # of a subagent no dialog is shown meanwhile
  cli:*) [ "$CLAUDE_PID" != $PPID ] || why=beside ;;
  esac
  ;;
esac
[ "$AGENT_BRIDGE_SESSION" ] && why=
umask 077
cd {quoted(spool)}/{ANSWERS} || why=
[ "$why" != away ] || [ -e ../{AWAY} ] || why=
if [ $why ] && nonce=$(mktemp -u XXXXXXXXXXXX) && mkfifo $nonce; then
  watch=
  trap 'exit 0' HUP INT TERM
  trap 'rm -f $nonce $nonce.json; [ ! $watch ] || kill $watch; exit 0' 0
  sleep {BRIDGE_SECONDS} </dev/null 3>&- >$nonce & # so it has a writer until the bridge comes
  first=$!
  exec 4<$nonce
  AGENT_BRIDGE_WAITS=:$why:$nonce
fi
printf '%s' "$event" | . {quoted(f"{spool}/{HOOK_SCRIPT}")}
event=
if [ $AGENT_BRIDGE_WAITS ]; then
  if [ $most ]; then # then the agent asks itself
    sleep $most </dev/null 3>&- 4<&- && kill $$ &
    watch=$!
  elif [ $why = away ]; then # nobody sees that it waits: it must not, for a bridge that hangs
    while sleep {WATCH_SECONDS} && [ "$(find ../{AWAY} -mmin -{WATCH_SECONDS // 60})" ]; do
      :
    done </dev/null 3>&- 4<&- && kill $$ &
    watch=$!
  fi
  read -r said <&4 && [ "$said" = held ] && kill $first && read -r said <&4
  [ "$said" != answer ] || {{ rm $nonce.json && cat >&3; }} <$nonce.json
fi
exit 0
"""


def hook_script(spool: str) -> str:
    """Return the script, which writes standard input into a new spool file.

    Before it stands a note of the agent's process (see process_note.py): its id and the directory
    of its settings, boot, and the state of the first process, which tells a pid namespace from
    others, and of the agent's; where there is no /proc, when both were started.

    One process besides the shell, cat (and ps, where there is no /proc): the shell's own ``read``
    takes a byte at a time. Below an agent that a bridge has started (AGENT_BRIDGE_SESSION) it
    writes nothing: each call would be reported twice.
    """
    return f"""\
# The bridge's hook: copies the event on standard input into a new file of the spool.
# Written by the bridge, which replaces it when it changes. It prints nothing and never fails.
# AGENT_BRIDGE_WAITS: where the script that has read it waits for an answer; AGENT_BRIDGE_AGENT:
# which agent runs it, none for Claude Code.
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
  [ ! "$AGENT_BRIDGE_AGENT" ] || CLAUDE_PID= # of a terminal that another agent was started in
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
      printf '{NOTE_MARK}%s %s %s\n' $agent \
        $by${{AGENT_BRIDGE_AGENT:+@}}$AGENT_BRIDGE_AGENT$AGENT_BRIDGE_WAITS \
        "${{CLAUDE_CONFIG_DIR:-$HOME/.claude}}"
      [ -r /proc/1/stat ] || LC_ALL=C TZ=UTC0 ps -o pid= -o lstart= -p 1,$agent 2>/dev/null
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


def write_hook_scripts(spool: Path) -> None:
    """Update the scripts in ``spool``, renamed into place. Raises OSError."""
    for name, made in ((HOOK_SCRIPT, hook_script), (ANSWER_SCRIPT, answer_script)):
        path, text = spool / name, made(str(spool)).encode()
        with contextlib.suppress(OSError):  # one that cannot be read is written anew
            if path.is_file() and path.read_bytes() == text:
                continue
        write_private_file(path, text)


def hook_of(agent: HookedAgent, event: str, spool: str, *, answers: bool) -> tuple[str, int]:
    """Return the command and the time-out, in seconds, of an agent's event.

    ``answers``: the event that asks waits for a person's answer by the bridge (D66).
    """
    waits = answers and event == agent.answers
    called = "" if agent.name == CLAUDE else agent.name
    if agent.form == "copilot":  # its events do not say which they are
        called += f"/{event}"
    command = answer_command(spool, called) if waits else hook_command(spool, called=called)
    usual = agent.seconds.get(event, COMMAND_SECONDS)
    if waits:
        usual = agent.waits + SPARE_SECONDS if agent.waits else ANSWER_SECONDS
    return command, usual


def hook_entry(
    event: str, spool: str, *, answers: bool = False, agent: HookedAgent = AGENTS[CLAUDE]
) -> dict[str, Any]:
    """Return the entry for ``event`` in JSON settings (SPEC Hook producer)."""
    command, seconds = hook_of(agent, event, spool, answers=answers)
    if agent.form == "copilot":
        return {"type": "command", "bash": command, "timeoutSec": seconds}
    hook = {"type": "command", "command": command, "timeout": seconds}
    return {"matcher": "*", "hooks": [hook]} if event in OF_TOOLS else {"hooks": [hook]}


def toml_marks(spool: str) -> tuple[str, str]:
    """Return the lines around our hooks in TOML settings."""
    name = json.dumps(spool)
    return f"# agent-bridge hooks of {name}: begin\n", f"# agent-bridge hooks of {name}: end\n"


def toml_hooks(agent: HookedAgent, spool: str) -> str:
    """Return all our hooks as lines for the end of TOML settings."""
    begin, end = toml_marks(spool)
    lines = []
    for event in agent.events:
        command, seconds = hook_of(agent, event, spool, answers=False)
        fields = {"event": event, "command": command, "timeout": seconds}
        values = (f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
        lines.append("".join(("[[hooks]]\n", *values)))
    return f"{begin}{''.join(lines)}{end}"


def hooks_text(agent: HookedAgent, spool: str) -> str:
    """Return an agent's settings that hold our hooks and nothing else."""
    if agent.form == "toml":
        return toml_hooks(agent, spool)
    settings: dict[str, Any] = {"version": 1} if agent.form == "copilot" else {}
    hooks = {event: [hook_entry(event, spool, agent=agent)] for event in agent.events}
    return json.dumps({**settings, "hooks": hooks}, indent=2, ensure_ascii=False) + "\n"
