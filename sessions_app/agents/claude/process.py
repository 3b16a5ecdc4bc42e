"""Connect the SDK to claude-code's program, which runs as our own process.

The SDK's own transport would hand the bridge's whole environment on and leave the program in our
process group.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import claude_agent_sdk as sdk

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from sessions_app.agents.process import groups
from sessions_app.agents.process.json_lines import JsonLines, Message

ENVIRONMENT = {
    # this one and the next as the SDK's own transport sets them
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_AGENT_SDK_VERSION": sdk.__version__,
    # Else a turn would end while its subagents go on: their approvals with it, and nobody would
    # wait for them before the session is paused or closed.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
    # its list of tasks, which a phone shows as one card; in a terminal it has it by itself
    "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1",
}
_ALWAYS = (
    *("--output-format", "stream-json", "--input-format", "stream-json"),
    *("--verbose", "--include-partial-messages"),
    # whatever asks, asks us
    *("--permission-prompt-tool", "stdio", "--permission-mode", "default"),
    # so that it asks while it plans, too, whatever its account switches on
    *("--settings", '{"useAutoModeDuringPlan": false}'),
    # nothing that a user or a repository has configured is started, allowed or told by hooks
    *("--setting-sources=", "--strict-mcp-config"),
    # nor does it see, or speak to, the user's other sessions
    "--disallowedTools=SendMessage,ListAgents",
)


def command(
    program: Path,
    resume_id: str | None,
    memory: Path | None = None,
    copies: Path | None = None,
    owners: Sequence[str] = (),
) -> list[str]:
    """Return the command line; the text of ``memory`` is added to the system prompt.

    In the directory ``copies`` the agent may read without asking (D70). ``owners``: options for
    what its owner names.
    """
    # each one argument with its value, which so can never be an option itself
    resume = [f"--resume={resume_id}"] if resume_id else []
    append = [f"--append-system-prompt-file={memory}"] if memory else []
    read = [f"--add-dir={copies}"] if copies else []
    return [str(program), *_ALWAYS, *owners, *resume, *append, *read]


class ClaudeProcess(JsonLines, sdk.Transport):
    """Exchange messages with the running program; `close` ends it and all it started."""

    def __init__(self, group: groups.Group) -> None:
        super().__init__(group, "claude-code", _message)
        self._closing = False

    async def connect(self) -> None:
        """Do nothing: it has been started."""

    def is_ready(self) -> bool:
        return not self.group.stdin.is_closing()

    async def write(self, data: str) -> None:
        try:
            await self.write_line(data.encode())
        except (ConnectionError, RuntimeError) as error:
            why = await self.describe_end()  # which says more than that it reads no more
            exited = self.group.exited.is_set()
            raise sdk.CLIConnectionError(why if exited else "it takes no more input") from error

    async def end_input(self) -> None:
        """Close its input: it finishes what it does, and ends."""
        self.group.stdin.close()

    async def read_messages(self) -> AsyncIterator[Message]:
        """Yield every message. Raises ProcessError when the program ends unasked."""
        while (message := await self.receive()) is not None:
            yield message
        if not self._closing:
            raise sdk.ProcessError(await self.describe_end())

    async def close(self) -> None:
        """End it within a bounded time; may be called twice.

        The end of its input tells it first, so that it can save its session.
        """
        self._closing = True
        await self.end_input()
        await groups.within(limits.AGENT_END_SECONDS, self.group.exited.wait())
        await groups.end_group(self.group, at_once=True)
        self.stop_reading()


def _message(line: bytes) -> Message | None:
    """Return a line's message; None for what some versions write beside them."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        message = jsontext.loads_lenient(line)
    except (ValueError, RecursionError):
        raise ValueError("it wrote a message that is no JSON, or nested too deeply") from None
    return message if isinstance(message, dict) else None
