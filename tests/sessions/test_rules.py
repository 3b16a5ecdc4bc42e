"""What a rule of a person covers, by tables of commands and files (D68)."""

import os
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bridge_project.protocol.risk import risk_of
from sessions_app.approvals.rules.matching import BUILDS, EDITS, READS, Judgement, judge
from sessions_app.approvals.tool_call import Call

pytestmark = pytest.mark.spec("ws.approval_response")

COMMANDS: dict[str, str] = tomllib.loads(
    (Path(__file__).parent.parent / "fixtures/rules.toml").read_text()
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    for name in (
        *("README.md", "package.json", "src/app.py", "src/deep/x.js", "tests/test_app.py"),
        *(".env", ".git/config", "node_modules/.bin/jest", "docs/keys/id_rsa", "src/hard.py"),
        *("bare/HEAD", "bare/config", "other/f", "linked/f", "README.md::/x", "install", "src/run"),
        *("conf/secrets/a", "conf/secrets/deep/b", "around/x"),
        *("@args.txt", "~x", "^x", "src /f", " src/f"),
    ):
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    (made / "out").symlink_to("/etc")
    (made / "secret").symlink_to(".env")
    (made / "src/led.py").symlink_to("app.py")
    (made / "src/run").chmod(0o755)
    (made / "deep").symlink_to("src/deep")
    (made / "-n").symlink_to("/etc/passwd")
    (made / "other/-n").symlink_to("/etc/passwd")
    (made / "gitdir").symlink_to(".git")
    (made / "linked/x").symlink_to("/etc")
    (made / "around/docs").symlink_to("../docs")
    (made / "README.md...").symlink_to("/etc/passwd")
    os.link(made / "src/hard.py", made / "src/other.py")
    return made


def judged(project: Path, tool: str, directory: str = "", **params: Any) -> Judgement:
    risk = risk_of(tool, params)
    where = str(project / directory)
    return judge(Call("1", tool, params, "x", risk, directory=where), project)


def of(project: Path, command: str) -> str:
    found = judged(project, "Bash", command=command)
    assert found.kinds <= {READS, BUILDS}
    if found.kinds:
        return "+".join(sorted(found.kinds))
    return "changes" if found.digest else "asks"


@pytest.mark.parametrize("kind", COMMANDS)
def test_what_a_rule_covers(project: Path, kind: str) -> None:
    commands = COMMANDS[kind].replace("PROJECT", project.name).splitlines()
    found = {one: of(project, one) for one in commands}
    assert {one: is_ for one, is_ in found.items() if is_ != kind} == {}


@pytest.mark.parametrize(
    "between", ["\n", "\r", "\t", "\0", "\v", "\x1b", "\x85", "\xa0", "\u2028", "\u3000"]
)
def test_a_command_of_several_lines_asks(project: Path, between: str) -> None:
    assert of(project, f"ls{between}id") == of(project, f"ls {between}") == "asks"


def test_what_reads_and_builds_needs_both_rules(project: Path) -> None:
    found = judged(project, "Bash", command="cat README.md && npm test")
    assert found.kinds == {READS, BUILDS}
    assert [offer.id for offer in found.offers] == ["exact"]


@pytest.mark.parametrize(
    ("more", "covered"),
    [
        ({}, True),
        ({"description": "Run tests", "timeout": 60_000}, True),
        ({"run_in_background": True}, False),
        ({"dangerouslyDisableSandbox": True}, False),
        ({"timeout": "$(id)"}, False),
        ({"cwd": "/tmp"}, False),
        ({"env": {"PATH": "."}}, False),
        ({"sessionId": "1"}, False),
    ],
)
def test_other_parameters_than_the_command(
    project: Path, more: dict[str, Any], covered: bool
) -> None:
    assert (judged(project, "Bash", command="npm test", **more).kinds == {BUILDS}) is covered


@pytest.mark.parametrize(
    ("where", "covered"),
    [
        *(("src", True), ("./src/deep", True), ("", True), ("PROJECT", True), ("deep", True)),
        *(("deep/..", False), ("~", False), ("~root", False), (" src", False), ("src ", False)),
        *(("@src", False), ("file:src", False), ("nothing", False), ("README.md", False)),
        *((".git", False), ("gitdir", False), ("out", False), ("..", False), (["src"], False)),
    ],
)
def test_where_a_call_says_that_it_runs(project: Path, where: Any, covered: bool) -> None:
    """A directory that some tools take for another is covered by no rule."""
    for command in ("npm test", "ls", "npm install"):
        cwd = where.replace("PROJECT", str(project)) if isinstance(where, str) else where
        found = judged(project, "Bash", command=command, cwd=cwd)
        assert bool(found.offers) is covered


EDITABLE = {
    **dict.fromkeys(("src/app.py", "src/new/file.py", "README.md", "./src/app.py"), True),
    **dict.fromkeys(("src/deep/../app.py", "docs/a.md"), True),
    **dict.fromkeys((".env", "package.json", "sub/package.json", "Makefile", "MAKEFILE"), False),
    **dict.fromkeys(("conftest.py", "tests/conftest.py", ".github/workflows/ci.yml"), False),
    **dict.fromkeys((".git/config", ".git/hooks/pre-commit", ".claude/settings.json"), False),
    **dict.fromkeys(("CLAUDE.md", "src/AGENTS.md", ".mcp.json", "jest.config.js"), False),
    **dict.fromkeys(("vite.config.mts", ".eslintrc.js", "babel.config.cjs", "setup.py"), False),
    **dict.fromkeys(("node_modules/x/index.js", "venv/lib/x.py", "scripts/build.py"), False),
    **dict.fromkeys(("run.sh", "Dockerfile", "docker-compose.yml", "pyproject.toml"), False),
    **dict.fromkeys(("out/passwd", "out", "secret", "src/led.py", "src/other.py"), False),
    **dict.fromkeys(("../x.py", "/etc/hosts", "~/.bashrc", "src", ".", "src/", "", "a\0b"), False),
    **dict.fromkeys(("keys/server.pem", "credentials.json", "x" * 5000), False),
    **dict.fromkeys(("src/profile.py", "test/x_test.exs", "src/@types/a.ts", "a b.md"), True),
    # not the same path to every tool
    **dict.fromkeys(("~/x.md", " /tmp/x.md", "\ufeff/tmp/x.md", "@/tmp/x.md", "x.md "), False),
    **dict.fromkeys(("file:///tmp/x.md", "src\\/x.md", "cafe\u0301.md", "deep/../../x.md"), False),
    **dict.fromkeys(("P\u200cackage.json", "pac\u212aage.json", "package．json"), False),
    # what builds, tools and agents run
    **dict.fromkeys(("src/run", "sub/HEAD", "CLAUDE.local.md", "AGENTS.override.md"), False),
    **dict.fromkeys(("binding.gyp", "project.json", "tsconfig.build.json", "karma.conf.js"), False),
    **dict.fromkeys(("webpack.config.prod.js", "babel.config.json", "npm-shrinkwrap.json"), False),
    **dict.fromkeys(("pylintrc", "gunicorn.conf.py", "rust-toolchain.toml", "build.ninja"), False),
    **dict.fromkeys(("Package.swift", "build.xml", "build.sbt", "nuget.config", "x.rsp"), False),
    **dict.fromkeys(("gradle/wrapper/gradle-wrapper.properties", "buildSrc/x.kt"), False),
    **dict.fromkeys(("Podfile", "Gemfile.lock", "Procfile.dev", "phpstan.neon", "x.rake"), False),
    **dict.fromkeys(("x.code-workspace", "azure-pipelines.yml", "configure", "SConstruct"), False),
    **dict.fromkeys(("dist/index.js", "script/build", "debian/rules", "config/prod.exs"), False),
}


@pytest.mark.parametrize("path", EDITABLE)
def test_which_files_a_rule_for_edits_covers(project: Path, path: str) -> None:
    for tool, params in (
        ("Write", {"content": "x"}),
        ("Edit", {"old_string": "x", "new_string": "y"}),
    ):
        found = judged(project, tool, file_path=path, **params)
        assert (found.kinds == {EDITS}) is EDITABLE[path]
        assert not found.digest


def test_an_edit_of_several_files_needs_each(project: Path) -> None:
    for other, covered in (("src/b.py", True), ("package.json", False), ("/etc/hosts", False)):
        more = [{"file_path": other, "content": "x"}]
        found = judged(project, "Edit", file_path="src/app.py", old_string="x", more=more)
        assert (found.kinds == {EDITS}) is covered
    for unknown in ([{"content": "x"}], [7], {"file_path": "src/b.py"}):
        found = judged(project, "Edit", file_path="src/app.py", old_string="x", more=unknown)
        assert not found.kinds


def test_edits_within_a_file_are_of_known_forms(project: Path) -> None:
    known = {"old_string": "a", "new_string": "b"}
    for edits, covered in (
        ([known, known], True),
        ([known, {**known, "file_path": "src/b.py"}], True),
        ([known, {**known, "file_path": "/etc/hosts"}], False),
        ([{**known, "uri": "/etc/hosts"}], False),
        ([{"edits": [{"edits": [{"file_path": "/etc/hosts"}]}]}], False),
        ({"edits": {"edits": {"file_path": "/etc/hosts"}}}, False),
        (["x"], False),
    ):
        found = judged(project, "Edit", file_path="src/app.py", edits=edits)
        assert (found.kinds == {EDITS}) is covered


def test_a_call_that_names_very_many_files_asks(project: Path) -> None:
    for count, covered in ((100, True), (50_000, False)):
        more = [{"file_path": "src/b.py", "content": "x"}] * count
        began = time.monotonic()
        found = judged(project, "Write", file_path="src/a.py", content="x", more=more)
        assert (found.kinds == {EDITS}) is covered
        assert time.monotonic() - began < 2


def test_a_path_that_is_not_looked_up_is_covered_by_nothing(project: Path) -> None:
    long = f"{'./' * 2100}../../x.md"
    for other in (long, "", 7, None, ["src/app.py"], {"x": "src/app.py"}):
        assert not judged(project, "Write", file_path="src/a.py", path=other, content="").kinds
        more = [{"file_path": "src/b.py", "path": other}]
        assert not judged(project, "Edit", file_path="src/a.py", more=more).kinds
        assert not judged(project, "Read", file_path="src/app.py", path=other).kinds


def test_tools_that_read_files(project: Path) -> None:
    for path, covered in (("src/app.py", True), (".env", False), ("secret", False), ("out", False)):
        assert (judged(project, "Read", file_path=path).kinds == {READS}) is covered
    assert not judged(project, "Read").kinds
    assert not judged(project, "Read", file_path="src/app.py", run="id").kinds


def test_a_call_in_another_directory(project: Path) -> None:
    same = judged(project, "Bash", command="npm test")
    below = judged(project, "Bash", "src", command="npm test")
    assert below.kinds == {BUILDS} and below.digest != same.digest
    for outside in ("..", "out"):
        assert judged(project, "Bash", outside, command="npm test") == Judgement()
    call = Call("1", "Bash", {"command": "npm test"}, "x", "medium")
    assert judge(call, project) == Judgement(), "nobody knows where it would run"


def test_what_a_program_is_given_is_looked_up_where_it_runs(project: Path) -> None:
    assert judged(project, "Bash", "src", command="cat app.py").kinds == {READS}
    assert not judged(project, "Bash", "src", command="cat README.md").kinds
    assert not judged(project, "Bash", "src", command="cat ../.env").kinds


def test_other_tools_are_covered_only_as_the_very_same_call(project: Path) -> None:
    one = judged(project, "mcp__x__do", a=1, b={"c": [1]})
    assert one.digest and one.digest == judged(project, "mcp__x__do", b={"c": [1]}, a=1).digest
    for other in ({"a": 2, "b": {"c": [1]}}, {"a": 1}, {"a": "1", "b": {"c": [1]}}):
        assert judged(project, "mcp__x__do", **other).digest != one.digest
    assert judged(project, "mcp__y__do", a=1, b={"c": [1]}).digest != one.digest
    for asks in ("AskUserQuestion", "Delete", "PowerShell", "Monitor"):
        assert judged(project, asks, command="ls") == Judgement()


def test_a_plan_is_covered_by_no_rule(project: Path) -> None:
    """Who approves it may let the agent edit files from then on (D69)."""
    found = judged(project, "ExitPlanMode", plan="Look, then edit.")
    assert [one.id for one in found.offers] == ["edits"]
    assert not found.digest and not found.kinds


def test_a_call_that_is_rated_worse_than_its_command_asks(project: Path) -> None:
    for risk in ("high", "critical"):
        call = Call("1", "Bash", {"command": "ls"}, "x", risk, directory=str(project))
        assert not judge(call, project).kinds


@pytest.mark.parametrize(
    "piece", ["ls ", "ls;", "'", '"', "cat README.md|", "a=", "cd ./src && ", "find . ", "grep "]
)
def test_a_hostile_command_costs_little(project: Path, piece: str) -> None:
    began = time.thread_time()
    for size in (3_990, 50_000):
        of(project, piece * (size // len(piece)))
    assert time.thread_time() - began < 3
