"""Know the agents whose hooks the bridge can take: one row each (D66, D75).

Where their settings are and in which form, what their events and fields are called, and how long
a hook may wait for an answer. Claude Code's names are the common ones: `as_common` renames others.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

Raw = dict[str, Any]

COMMAND_SECONDS = 10  # SPEC Hook producer configuration; SessionEnd would otherwise have 1.5
WAIT_SECONDS = 50  # that a hook waits while the agent shows no dialog; they are ended after 60
ASKS = "PermissionRequest"  # the event whose hook may wait for an answer
CLAUDE = "claude-code"
GROK = "grok"


@dataclass(frozen=True)
class HookedAgent:
    """Hold where an agent's hooks are set, and what they say.

    ``file``: its settings below its ``home``, which ``variable`` names instead; ``form``: of that
    file. ``events``: its own name of an event → the common one. ``seconds``: time-outs that differ.
    ``answers``: the event at which it takes an answer from a hook, for which that waits ``waits``
    seconds, 0: as long as its dialog stands. Where the event comes for calls that nobody asks about
    too, it waits at the tools of ``asking`` only, in the mode in which they ask. ``names``: of its
    fields → the common ones; ``tools``: likewise. ``mend`` changes what else differs. ``then``:
    what its user must do besides.
    """

    name: str
    product: str
    program: str
    variable: str
    home: str
    file: str
    events: Mapping[str, str]
    form: str = "claude"
    seconds: Mapping[str, int] = field(default_factory=dict)
    answers: str = ""
    waits: int = WAIT_SECONDS
    asking: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    mend: Callable[[Raw], Raw] = lambda raw: raw
    then: str = ""

    def settings(self) -> Path:
        """Return the file of its settings that hold hooks."""
        home = os.environ.get(self.variable) if self.variable else None
        return Path(home or self.home).expanduser() / self.file


def _same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


OF_TOOLS = ("PreToolUse", "PostToolUse", "PostToolUseFailure", ASKS)
_BASIC = "SessionStart SessionEnd PreToolUse PostToolUse UserPromptSubmit Stop SubagentStop"
_USUAL = f"{_BASIC} PreCompact Notification"


# -- what differs ----------------------------------------------------------------------------------


def _kimi(raw: Raw) -> Raw:
    """Take the main agent's id away, and text out of a prompt and an error."""
    if raw.get("agent_id") == "main":
        del raw["agent_id"]
    if isinstance(blocks := raw.get("prompt"), list):
        texts = [one.get("text") for one in blocks if isinstance(one, dict)]
        raw["prompt"] = "\n".join(text for text in texts if isinstance(text, str))
    if isinstance(error := raw.get("error"), dict):
        raw["error"] = str(error.get("message") or error)
    return raw


def _codex(raw: Raw) -> Raw:
    """Take what a command is for out of its parameters: a question words it anew."""
    params = raw.get("tool_input")
    if raw.get("tool_name") in ("Bash", "bash") and isinstance(params, dict):
        raw["tool_input"] = {name: params[name] for name in params if name != "description"}
        if isinstance(why := params.get("description"), str):
            raw["reasoning"] = why
    return raw


def _copilot(raw: Raw) -> Raw:
    """Change what `_codex` does, and take the text of a result."""
    raw, result = _codex(raw), raw.get("tool_response")
    if isinstance(result, dict) and isinstance(text := result.get("textResultForLlm"), str):
        raw["tool_response"] = text
    return raw


# Its fields have two names, of which the first are dropped here.
_TWICE = {
    "hookEventName": "hook_event_name",
    "sessionId": "session_id",
    "transcriptPath": "transcript_path",
    "permissionMode": "permission_mode",
    "toolName": "tool_name",
    "toolInput": "tool_input",
    "toolUseId": "tool_use_id",
    "toolResult": "tool_response",
    "durationMs": "duration_ms",
    "notificationType": "notification_type",
    "promptId": "prompt_id",
    "stopHookActive": "stop_hook_active",
    "backgroundTasks": "background_tasks",
    "sessionCrons": "session_crons",
    "lastAssistantMessage": "last_assistant_message",
}


def _grok(raw: Raw) -> Raw:
    """Pass over a second Stop, and take what a command printed for its result."""
    result = raw.get("tool_response")
    if isinstance(result, dict) and isinstance(text := result.get("output_for_prompt"), str):
        raw["tool_response"] = text
    if raw.get("hook_event_name") == "Stop" and raw.get("reason") in ("shutdown", "channel_closed"):
        raw["hook_event_name"] = "StopAgain"
    return raw


def _qwen(raw: Raw) -> Raw:
    """Pass over prompts without words: results of tools."""
    if raw.get("hook_event_name") == "UserPromptSubmit" and not raw.get("prompt"):
        raw["hook_event_name"] = "ToolResults"
    return raw


AGENTS: dict[str, HookedAgent] = {
    one.name: one
    for one in (
        HookedAgent(
            *(CLAUDE, "Claude Code", "claude", "CLAUDE_CONFIG_DIR", "~/.claude", "settings.json"),
            _same(f"{_USUAL} PostToolUseFailure {ASKS} StopFailure Elicitation ElicitationResult"),
            answers=ASKS,
            waits=0,
        ),
        HookedAgent(
            *("codex", "Codex", "codex", "CODEX_HOME", "~/.codex", "hooks.json"),
            _same(f"{_BASIC} PreCompact {ASKS}"),
            seconds={"SessionEnd": 3},  # more it warns of
            answers=ASKS,
            mend=_codex,
            then='Codex runs them once you trust them: start it, and at "Hooks need review" choose'
            ' "Trust all and continue".',
        ),
        HookedAgent(
            *("qwen", "Qwen Code", "qwen", "QWEN_HOME", "~/.qwen", "settings.json"),
            _same(f"{_USUAL} PostToolUseFailure {ASKS} StopFailure"),
            answers=ASKS,
            mend=_qwen,
        ),
        HookedAgent(
            *("droid", "Factory's droid", "droid", "", "~/.factory", "settings.json"),
            _same(_USUAL),
            answers="PreToolUse",  # it has none of a question
            asking=("Execute", "Edit", "MultiEdit", "Create", "ApplyPatch"),
        ),
        HookedAgent(
            *(GROK, "Grok", "grok", "GROK_HOME", "~/.grok", "hooks/agent-bridge.json"),
            _same(f"{_USUAL} PostToolUseFailure StopFailure"),
            names=_TWICE,
            mend=_grok,
        ),
        HookedAgent(
            *("copilot", "GitHub Copilot CLI", "copilot", "COPILOT_HOME", "~/.copilot"),
            "hooks/agent-bridge.json",
            {
                "sessionStart": "SessionStart",
                "sessionEnd": "SessionEnd",
                "preToolUse": "PreToolUse",
                "postToolUse": "PostToolUse",
                "permissionRequest": ASKS,
                "userPromptSubmitted": "UserPromptSubmit",
                "agentStop": "Stop",
                "subagentStop": "SubagentStop",
                "preCompact": "PreCompact",
                "notification": "Notification",
            },
            form="copilot",
            answers="permissionRequest",
            waits=25,  # it ends hooks after 30 seconds
            names={
                "sessionId": "session_id",
                "toolName": "tool_name",
                "toolArgs": "tool_input",
                "toolInput": "tool_input",
                "toolResult": "tool_response",
                "transcriptPath": "transcript_path",
                "hookName": "hook_name",
            },
            tools={"create": "edit"},  # as its question calls both
            mend=_copilot,
        ),
        HookedAgent(
            *("kimi", "Kimi Code", "kimi", "KIMI_CODE_HOME", "~/.kimi-code", "config.toml"),
            _same(f"{_USUAL} PostToolUseFailure {ASKS} StopFailure"),
            form="toml",
            names={"tool_call_id": "tool_use_id", "tool_output": "tool_response"},
            mend=_kimi,
        ),
    )
}


def as_common(raw: Raw, called: str, *, waits: bool) -> tuple[Raw, str]:
    """Return an agent's input in the common names, and its name, "" for Claude Code.

    ``called``: what its command says, the agent's name and, where the input does not have it, the
    event's. Of a hook that ``waits`` for an answer the event is a question.
    """
    name, _, event = called.partition("/")
    if not name and "hookEventName" in raw:
        name = GROK  # which runs Claude Code's hooks too
    agent = AGENTS.get(name)
    if agent is None:
        return raw, ""
    common = {new: raw[old] for old, new in agent.names.items() if old in raw}
    common |= {known: value for known, value in raw.items() if known not in agent.names}
    common["hook_event_name"] = agent.events.get(event, common.get("hook_event_name"))
    if waits:
        common["hook_event_name"] = ASKS
    if (tool := common.get("tool_name")) in agent.tools:
        common["tool_name"] = agent.tools[str(tool)]
    return agent.mend(common), name


def repeated_id(raw: Raw, agent: str) -> str | None:
    """Return an event id for Grok, which also runs the hooks of Claude Code."""
    if agent != GROK:
        return None
    text = json.dumps(raw, sort_keys=True)
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{GROK}:{text}"))
