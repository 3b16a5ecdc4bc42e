"""Rate how risky a tool call is, by its name and parameters (SPEC risk_level).

Standard library only: the forwarder of another machine carries this module in its one file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

RiskLevel = Literal["low", "medium", "high", "critical"]

_LOW = (
    "Read Glob Grep LS NotebookRead TodoWrite ToolSearch AskUserQuestion ExitPlanMode BashOutput "
    "TaskOutput"
)
_HIGH = "Bash PowerShell Monitor"
RISK_OF_TOOL: dict[str, RiskLevel] = {
    **dict.fromkeys(_LOW.split(), "low"),
    **dict.fromkeys(_HIGH.split(), "high"),
}
# What makes a shell command critical: it cannot be taken back, takes rights, or runs what nobody
# has read.
CRITICAL_COMMAND = re.compile(
    r"""\brm\s+(?:-\S+\s+){0,9}(?:-[a-zA-Z]*[rRf]|--recursive|--force)          # rm -rf, -r -f, -f
    |\b(?:sudo|doas|pkexec|mkfs(?:\.\w+)?|shutdown|reboot|wipefs)\b
    |\b(?:curl|wget)\b[^|;\n]{0,300}\|\s*(?:sudo\s+)?(?:\S{0,100}/)?(?:env\s+)?(?:ba|z|da|k)?(?:sh|python[\d.]*|perl|node|ruby)\b
    |\b(?:eval|sh|bash|zsh|source)\b[^;\n]{0,40}[$<]\(\s*(?:curl|wget)\b
    |\bgit\s+(?:\S+\s+){0,9}?push\b[^;&|\n]{0,200}\s(?:--force\S*|-[a-zA-Z]*f[a-zA-Z]*|--mirror|--delete|\+\S+)(?:\s|$)
    |\bgit\s+(?:reset\s+(?:\S+\s+){0,5}?--hard|clean\s+(?:\S+\s+){0,5}?-[a-zA-Z]*f)
    |\bdd\b[^;|\n]{0,200}\bof=/dev/|>\s*/dev/(?:sd|nvme|vd|hd|mmcblk|disk)
    |\bchmod\s+(?:-\S+\s+){0,5}(?:-R|--recursive)\b|\bchown\s+(?:-\S+\s+){0,5}(?:-R|--recursive)\b
    |:\s*\(\)\s*\{|\bterraform\s+destroy\b|\bkubectl\s+delete\b|\bdrop\s+(?:table|database|schema)\b""",
    re.VERBOSE | re.IGNORECASE,
)
COMMAND_READABLE_CHARS = 100_000  # a longer one has been read by nobody
SENSITIVE_PATH = re.compile(
    r"^/(?:etc|usr|boot|bin|sbin|lib)/|/\.(?:ssh|gnupg|aws|kube)/|/\.git/hooks/|/\.(?:bashrc|zshrc|profile|bash_profile)$|(?:^|/)\.env(?:\.|$)"
)


def risk_of(tool: str, params: Mapping[str, Any]) -> RiskLevel:
    """Rate a tool call.

    ``low``: only reads; ``medium``: writes, asks the network, or is unknown; ``high``: a shell, or
    a sensitive path; ``critical``: a CRITICAL_COMMAND.
    """
    risk: RiskLevel = RISK_OF_TOOL.get(tool, "medium")
    if risk == "high":
        command = str(params.get("command", ""))
        unread = len(command) > COMMAND_READABLE_CHARS
        return "critical" if unread or CRITICAL_COMMAND.search(command) else "high"
    path = params.get("file_path") or params.get("notebook_path") or ""
    sensitive = isinstance(path, str) and SENSITIVE_PATH.search(path)
    return "high" if risk == "medium" and sensitive else risk
