"""Which command lines are those of a known agent (D59)."""

import shlex

import pytest

from sessions_app.agents.acp import recipes

# command line → the program with which its user logs in
KNOWN = {
    "gemini --acp": "gemini",
    "./bin/opencode acp": "opencode",
    "npx -y @google/gemini-cli@latest --acp": "gemini",
    "npx --package=opencode-ai opencode acp": "opencode",
    "env -u HOME -C /srv A=1 vibe-acp": "vibe",
    "env -i -- npx -p vibe-acp vibe-acp": "vibe",
    "node --max-old-space-size=4096 -r ./x.js /n/node_modules/opencode-ai/a.js": "opencode",
}
UNKNOWN = """\
evil
npx --prefix gemini evil
npx --prefix evil gemini
npx -c gemini
npx -p gemini evil
env -a vibe-acp evil
env -S evil vibe-acp
env -u
node -p CODE opencode
node -e CODE opencode
node --eval=CODE opencode
node - opencode
node --title opencode evil
node -r opencode evil"""


@pytest.mark.parametrize("line", [*KNOWN, *UNKNOWN.splitlines()])
def test_a_command_line(line: str) -> None:
    """An option's value and code that is run are no programs; what is not sure is not known."""
    found = recipes.of_line(shlex.split(line))
    assert (found and found.log_in.split()[0]) == KNOWN.get(line)
