"""The hook command: prints nothing, exits 0, keeps what it was given, whatever happens (D47)."""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge_project.kernel import processes, ways
from bridge_project.kernel.process_note import split_note
from hooks_app.producer.shell_command import (
    ANSWERS,
    AWAY,
    BRIDGE_SECONDS,
    HOOK_SCRIPT,
    MOST_TRIES,
    answer_command,
    hook_command,
    hook_script,
    write_hook_scripts,
)
from tests.hooks.conftest import run_hook, waiting
from tests.servers import wait_until

LARGE = b"{" + b" " * 200_000 + b"}"
SHELLS = [shell for shell in ("dash", "bash", "busybox", "zsh", "mksh") if shutil.which(shell)]


def in_shell(
    shell: str, spool: Path, data: bytes, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """The hook command as an agent runs it in that shell."""
    return subprocess.run(
        [*([shell, "sh"] if shell == "busybox" else [shell]), "-c", hook_command(str(spool))],
        input=data,
        capture_output=True,
        env=os.environ | environment,
        timeout=180,
    )


def quiet(done: subprocess.CompletedProcess[bytes]) -> bool:
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def change_script(spool: Path, old: str, new: str) -> None:
    script = spool / HOOK_SCRIPT
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))


AWKWARD = (b"{}", b'{"a": "\\u00e9 $HOME `x` \\\\ \'"}', b'{\n "a": 1\n}\n', LARGE)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_keeps_every_byte_in_every_shell(spool: Path, shell: str) -> None:
    for data in AWKWARD:
        assert quiet(in_shell(shell, spool, data))
        (name,) = waiting(spool)
        note, event = split_note((spool / name).read_bytes())
        assert event == data
        assert note is not None and (note.pid, note.certain) == (os.getpid(), False)
        assert processes.lives(note)
        assert stat.S_IMODE((spool / name).stat().st_mode) == 0o600
        (spool / name).unlink()


@pytest.mark.parametrize("shell", SHELLS)
def test_without_proc_ps_tells_which_process_it_was(
    spool: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D77: a process that ended lives no more, nor does another that has its id since."""
    monkeypatch.setitem(ways.linux, "programs", False)
    processes.here.cache_clear()
    change_script(spool, "/proc/", "/no such directory/")
    with subprocess.Popen(["sleep", "1000"]) as agent:
        assert quiet(in_shell(shell, spool, LARGE, CLAUDE_PID=str(agent.pid), TZ="Asia/Tokyo"))
        (name,) = waiting(spool)
        note, event = split_note((spool / name).read_bytes())
        assert event == LARGE
        assert note is not None and (note.pid, note.certain) == (agent.pid, True)
        assert processes.lives(note)
        assert note.start is not None and note.space is not None
        earlier = note.start - 2 * processes.SAME_START_SECONDS
        assert not processes.lives(note._replace(start=earlier))
        assert not processes.is_comparable(note._replace(space=note.space - 3600))
        agent.kill()
    assert processes.is_comparable(note) and not processes.lives(note)


@pytest.fixture(autouse=True)
def _this_boot() -> Iterator[None]:
    yield
    processes.here.cache_clear()


@pytest.mark.parametrize("shell", SHELLS)
def test_below_an_agent_that_a_bridge_runs_it_reports_nothing(spool: Path, shell: str) -> None:
    """What that agent writes is read to its end, or it would meet a broken pipe."""
    assert quiet(in_shell(shell, spool, LARGE, AGENT_BRIDGE_SESSION="1"))
    assert waiting(spool) == []


def test_a_recycled_process_id_overwrites_nothing(spool: Path) -> None:
    """`$$` is replaced by a fixed number. When there are too many of them, a mark is left."""
    change_script(spool, "$$", "4711")
    for number in range(15):
        run_hook(spool, str(number).encode())
    names = ["4711", *(f"4711.{number}" for number in range(1, 15))]
    events = [split_note((spool / name).read_bytes())[1] for name in names]
    assert events == [b"%d" % n for n in range(15)]
    change_script(spool, str(MOST_TRIES), "15")
    assert not (spool / "lost").exists()
    run_hook(spool, b"15")
    assert (spool / "lost").exists()
    assert sorted(waiting(spool)) == sorted(names)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_that_is_cut_or_gone_blocks_no_agent(spool: Path, shell: str) -> None:
    """The exit code 2 would block the agent, and dash has it for a file that it cannot parse."""
    script, whole = spool / HOOK_SCRIPT, hook_script(str(spool)).splitlines(keepends=True)

    def run() -> bool:
        return quiet(in_shell(shell, spool, b"{}"))

    for kept in range(len(whole)):
        script.write_text("".join(whole[:kept]))
        assert run(), "".join(whole[:kept])
    script.chmod(0)
    assert run()
    script.unlink()
    assert run()
    script.mkdir()
    assert run()
    script.rmdir()
    script.write_text("exit 1")
    write_hook_scripts(spool)
    before = len(waiting(spool))
    assert run() and len(waiting(spool)) == before + 1, "a script that changed is renewed"
    shutil.rmtree(spool.parent)
    assert run() and not spool.parent.exists(), "the bridge was uninstalled"


@pytest.mark.parametrize("limit", [0, 8])
def test_the_disk_is_full(spool: Path, limit: int) -> None:
    """Or so a file size limit looks to cat. The loss is marked, the agent's pipe does not break."""
    full = f"ulimit -f {limit};trap '' XFSZ;{hook_command(str(spool))}"
    for _ in range(2):
        run_hook(spool, LARGE, full)
        assert waiting(spool) == []
        assert (spool / "lost").exists()
    run_hook(spool, b"{}")
    assert len(waiting(spool)) == 1, "the disk has room again, and nobody is needed to say so"


def test_standard_input_is_closed_or_empty_or_no_cat_is_to_be_found(spool: Path) -> None:
    run_hook(spool, b"")
    closed = ["/bin/sh", "-c", f"exec <&-;{hook_command(str(spool))}"]
    assert quiet(subprocess.run(closed, capture_output=True, timeout=180))
    assert quiet(in_shell("/bin/sh", spool, b"{}", PATH="/nonexistent"))


def test_without_a_forwarder_the_spool_stays_bounded(spool: Path) -> None:
    """Every 257th process id measures the spool: here it is one of those, and the bound small."""
    change_script(spool, "$$", "514")
    change_script(spool, "-gt 200000 ", "-gt 100 ")
    run_hook(spool, b"{}")
    assert not (spool / "full").exists()
    (spool / "514").write_bytes(b"x" * 200_000)  # a process id that comes again measures too
    for number in range(1, 257):
        (spool / f"514.{number}").touch()
    run_hook(spool, b"{}")
    assert (spool / "full").exists()
    before = waiting(spool)
    run_hook(spool, LARGE)
    assert waiting(spool) == before


# the hook that waits for an answer (D66)

ASKS = b'{"hook_event_name": "PermissionRequest", "tool_input": {"command": "echo \\"agent_id\\""}}'
WAITS_FOR = {"CLAUDE_CODE_ENTRYPOINT": "cli", "CLAUDE_PID": str(os.getpid())}


class Asking:
    """The hook of a permission request, and a bridge as far as it knows one."""

    def __init__(self, shell: str, spool: Path, data: bytes = ASKS, **environment: str) -> None:
        self.spool, self.held = spool, -1
        (spool / ANSWERS).mkdir(mode=0o700, exist_ok=True)
        self.process = subprocess.Popen(
            [*([shell, "sh"] if shell == "busybox" else [shell]), "-c", answer_command(str(spool))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | WAITS_FOR | environment,
        )
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.close()
        self.process.stdin = None
        wait_until(lambda: any((spool / one).read_bytes().endswith(data) for one in waiting(spool)))
        (name,) = waiting(spool)
        note, self.event = split_note((spool / name).read_bytes())
        assert note is not None
        self.nonce, self.beside = note.nonce, note.beside
        (spool / name).unlink()

    def hold(self) -> None:
        fifo = self.spool / ANSWERS / self.nonce
        self.held = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        os.write(self.held, b"held\n")

    def let_go(self) -> None:
        os.close(self.held)

    def printed(self) -> bytes:
        out, error = self.process.communicate(timeout=180)
        assert (self.process.returncode, error) == (0, b"")
        assert list((self.spool / ANSWERS).iterdir()) == [], "nothing is left"
        return out


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_answer_is_printed_byte_for_byte(spool: Path, shell: str) -> None:
    hook = Asking(shell, spool)
    assert hook.event == ASKS and hook.beside
    hook.hold()
    answer = b'{"a": "\\n $HOME \xc3\xa9"}' * 5000
    (spool / ANSWERS / f"{hook.nonce}.json").write_bytes(answer)
    os.write(hook.held, b"answer\n")
    assert hook.printed() == answer
    hook.let_go()


def test_a_place_with_an_odd_name(spool: Path, shell: str) -> None:
    odd = spool.parent / "it's $HOME `id` hook.sh" / "spool"
    odd.mkdir(parents=True, mode=0o700)
    write_hook_scripts(odd)
    hook = Asking(shell, odd)
    hook.hold()
    (odd / ANSWERS / f"{hook.nonce}.json").write_bytes(b"{}")
    os.write(hook.held, b"answer\n")
    assert hook.printed() == b"{}"
    hook.let_go()


def test_it_prints_nothing_without_an_answer(spool: Path, shell: str) -> None:
    """The bridge has ended; said that there is one which is not there; the desk refused."""
    hook = Asking(shell, spool)
    hook.hold()
    hook.let_go()
    assert hook.printed() == b""
    hook = Asking(shell, spool)
    hook.hold()
    os.write(hook.held, b"answer\n")
    assert hook.printed() == b""
    hook.let_go()
    hook = Asking(shell, spool)
    hook.hold()
    hook.process.terminate()
    assert hook.printed() == b""
    hook.let_go()


def test_without_a_bridge_it_soon_leaves(spool: Path, shell: str) -> None:
    start = time.monotonic()
    assert Asking(shell, spool).printed() == b""
    assert time.monotonic() - start < BRIDGE_SECONDS + 2


AWAY_ONLY: dict[str, tuple[bytes, dict[str, str]]] = {
    "a subagent's": (ASKS.replace(b'"tool_input"', b'"agent_id": "a", "tool_input"'), {}),
    "another program's": (ASKS, {"CLAUDE_PID": "1"}),
    "of an agent that says nothing": (ASKS, {"CLAUDE_CODE_ENTRYPOINT": ""}),
}
NEVER = ("sdk-cli", "sdk-py")  # `-p`, an SDK


def test_it_waits_where_a_dialog_is_up_or_the_owner_is_away(spool: Path, shell: str) -> None:
    for data, environment in AWAY_ONLY.values():
        hook = Asking(shell, spool, data, **environment)
        assert hook.printed() == b"" and hook.nonce == ""
    (spool / AWAY).touch()
    for data, environment in AWAY_ONLY.values():
        hook = Asking(shell, spool, data, **environment)
        assert hook.nonce and not hook.beside
        hook.hold()
        hook.let_go()
        assert hook.printed() == b""
    for entrypoint in NEVER:
        hook = Asking(shell, spool, ASKS, CLAUDE_CODE_ENTRYPOINT=entrypoint)
        assert hook.printed() == b"" and hook.nonce == ""


def test_below_an_agent_of_a_bridge_nothing_waits(spool: Path) -> None:
    (spool / ANSWERS).mkdir(mode=0o700)
    done = subprocess.run(
        ["/bin/sh", "-c", answer_command(str(spool))],
        input=LARGE,
        capture_output=True,
        env=os.environ | WAITS_FOR | {"AGENT_BRIDGE_SESSION": "1"},
        timeout=180,
    )
    assert quiet(done) and waiting(spool) == []


def test_a_bridge_that_hangs_keeps_no_agent_for_ever(spool: Path) -> None:
    """Where nobody sees that it waits, it looks whether the bridge lives; here, every second."""
    write_hook_scripts(spool)
    script = spool / "answer.sh"
    script.write_text(script.read_text().replace("sleep 240", "sleep 1"))
    (spool / AWAY).touch()
    os.utime(spool / AWAY, (0, 0))
    hook = Asking("/bin/sh", spool, CLAUDE_PID="1")
    hook.hold()
    assert hook.printed() == b""
    hook.let_go()
