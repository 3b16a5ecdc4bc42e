"""Which command lines are those of a known agent (D59)."""

import shlex

import pytest

from sessions_app.agents.acp import recipes


@pytest.mark.parametrize(
    ("line", "log_in"),
    [
        ("gemini --acp", "gemini"),
        ("./bin/opencode acp", "opencode auth login"),
        ("npx -y @google/gemini-cli@latest --acp", "gemini"),
        ("npx --package=opencode-ai opencode acp", "opencode auth login"),
        ("env -u HOME -C /srv A=1 codex-acp", "codex login"),
        ("env -i -- npx -p codex-acp codex-acp", "codex login"),
        ("node --max-old-space-size=4096 -r ./x.js /n/node_modules/opencode-ai/a.js", "opencode"),
        ("evil", None),
        ("npx --prefix gemini evil", None),
        ("npx --prefix evil gemini", None),
        ("npx -c gemini", None),
        ("npx -p gemini evil", None),
        ("env -a codex-acp evil", None),
        ("env -S evil codex-acp", None),
        ("env -u", None),
        ("node -p CODE opencode", None),
        ("node -e CODE opencode", None),
        ("node --eval=CODE opencode", None),
        ("node - opencode", None),
        ("node --title opencode evil", None),
        ("node -r opencode evil", None),
    ],
)
def test_a_command_line(line: str, log_in: str | None) -> None:
    """An option's value and code that is run are no programs; what is not sure is not known."""
    found = recipes.of_line(shlex.split(line))
    assert (found and found.log_in.split()[0]) == (log_in and log_in.split()[0])
