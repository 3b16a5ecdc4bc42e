"""The hook command: prints nothing, exits 0, keeps what it was given, whatever happens (D47)."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from bridge_project.kernel.process_note import split_note
from hooks_app.producer.shell_command import (
    HOOK_SCRIPT,
    MOST_TRIES,
    hook_command,
    hook_script,
    write_hook_script,
)
from sessions_app.observed import processes
from tests.hooks.conftest import run_hook, waiting

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
    write_hook_script(spool)
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
