"""How dangerous a tool call is. The rules are the hook producer's, which must be one file and so
cannot be imported from below: it registers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from bridge_project.protocol.types import RiskLevel

Rules = Callable[[str, dict[str, Any]], str]

_rules: list[Rules] = []


def register(rules: Rules) -> None:
    _rules[:] = [rules]


def risk_of(tool: str, params: Mapping[str, Any]) -> RiskLevel:
    """``medium`` for whatever no rule knows."""
    return cast(RiskLevel, _rules[0](tool, dict(params))) if _rules else "medium"
