"""A turn outlives the bridge that is killed under it (D79); nothing is lost, doubled, reordered."""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import psutil
import pytest

from tests.conformance.admin import Admin, text_of
from tests.conformance.agent_tools import (
    Script,
    bridge_of,
    quick_bridge,
    script_of,
    status,
    wait_status,
)
from tests.conformance.agents import (
    ask,
    asked,
    begin,
    end,
    log_of,
    say,
    send_start,
    start,
    tool,
    words,
)
from tests.conformance.approvals import assert_refused, decide, notifications, of, pending
from tests.conformance.bridge import Bridge, query
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_session
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import wait_until

pytestmark = pytest.mark.slow

script = script_of("plain", "asks", "hangs")
bridge = bridge_of(BRIDGE_DEMO_SHELL="1")


def again(bridge: Bridge, phone: Phone, session_id: str) -> Phone:
    """The same device after a restart, back in its session."""
    phone.close()
    phone.ready().join(session_id)
    return phone


def restart(bridge: Bridge) -> None:
    bridge.kill()
    bridge.start()


def ended(bridge: Bridge, phone: Phone, session_id: str) -> list[Message]:
    """What is kept of the session, once its turn has ended."""
    wait_until(lambda: bridge.session(session_id)["turn"] == "idle")
    return log_of(phone, session_id)


def told_of_errors(phone: Phone, session_id: str) -> list[str]:
    """What the notifications say, of which there is one at least."""
    phone.collect(lambda: bool(notifications(phone, session_id, "error")), "an error")
    return [one["body"] for one in notifications(phone, session_id, "error")]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("agent", ["demo", "plain"])
def test_a_bridge_that_is_killed_in_mid_stream(
    bridge: Bridge, phone: Phone, agent: str, times: int
) -> None:
    """The turn goes on, also when the bridge is killed twice in a row."""
    session_id = begin(bridge, phone, agent=agent)
    say(phone, session_id, "/sleep 4" if agent == "demo" else "/rate n 400 100")
    phone.expect("stream_chunk", session_id=session_id)
    for _ in range(times):
        restart(bridge)
    again(bridge, phone, session_id)
    assert status(bridge, session_id) == "active"
    kept = ended(bridge, phone, session_id)
    said = words(kept).split()
    if agent == "demo":
        count = len(said) - len(["Slept", "for", "4", "seconds."])
        assert said == [*map(str, range(1, count + 1)), *["Slept", "for", "4", "seconds."]]
    else:
        assert said == [f"n-{number}" for number in range(400)]
    kinds = [one["type"] for one in kept if one["type"] in ("stream_start", "stream_end")]
    assert kinds == ["stream_start", "stream_end"]
    assert not notifications(phone, session_id, "error"), "nothing was cut off"
    end(phone, session_id)


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_a_question_that_is_open(
    bridge: Bridge, phone: Phone, script: Script, decision: str
) -> None:
    """It waits with the same id, and is decided once."""
    session_id = begin(bridge, phone, agent="asks")
    call_id = asked(phone, session_id)
    restart(bridge)
    again(bridge, phone, session_id)
    assert pending(bridge, session_id) == [call_id]
    answer = decide(phone, session_id, call_id, decision)
    assert answer["payload"]["forwarded"] is True
    kept = ended(bridge, phone, session_id)
    [result] = [one for one in kept if one["type"] == "tool_result"]
    assert result["payload"]["result"]["success"] is (decision == "approved")
    chosen = {"approved": "allow_once", "rejected": "reject_once"}[decision]
    assert script.lines("decided")[-1]["outcome"]["optionId"] == chosen
    assert len(script.lines("decided")) == len({one["call"] for one in script.lines("decided")})
    end(phone, session_id)


def test_two_bridges_that_start_at_once(bridge: Bridge, phone: Phone) -> None:
    """One has the data directory and takes over; the other says so and touches no host."""
    session_id = begin(bridge, phone, agent="plain")
    say(phone, session_id, "/rate two 400 100")
    phone.expect("stream_chunk", session_id=session_id)
    bridge.kill()
    started = [bridge.spawn().running for _ in range(2)]
    wait_until(lambda: any(one.poll() is not None for one in started))
    [refused] = [one for one in started if one.poll() is not None]
    assert refused.poll() == 1
    [bridge.process] = [one for one in started if one is not refused]
    bridge.wait_ready()
    again(bridge, phone, session_id)
    assert words(ended(bridge, phone, session_id)).split() == [f"two-{n}" for n in range(400)]
    assert len(bridge.hosts()) == 1
    end(phone, session_id)


def test_an_answer_on_its_way(bridge: Bridge, phone: Phone) -> None:
    """It is stored, and the bridge is killed before or after the agent has it: it runs once."""
    session_id = begin(bridge, phone)
    for number in range(5):
        call = tool(phone, session_id, command=f"echo {number} >> ran")["tool_call_id"]
        decide(phone, session_id, call, "approved")
        restart(bridge)
        again(bridge, phone, session_id)
        ended(bridge, phone, session_id)
    assert (bridge.root / "ran").read_text().split() == list("01234")
    end(phone, session_id)


def test_what_came_while_a_turn_ran_is_given_after_it(
    bridge: Bridge, phone: Phone, script: Script
) -> None:
    session_id = begin(bridge, phone, agent="plain")
    say(phone, session_id, "/rate first 200 100")
    phone.expect("stream_chunk", session_id=session_id)
    say(phone, session_id, "second")
    phone.expect("message_state", session_id=session_id, state="queued")
    restart(bridge)
    again(bridge, phone, session_id)
    wait_until(lambda: script.prompts()[-1] == "second")
    kept = ended(bridge, phone, session_id)
    assert words(kept).count("first-") == 200
    assert script.prompts().count("second") == 1
    end(phone, session_id)


def test_an_interrupt_works_afterwards(bridge: Bridge, phone: Phone) -> None:
    session_id = begin(bridge, phone, agent="plain")
    say(phone, session_id, "/rate n 60000 100")
    phone.expect("stream_chunk", session_id=session_id)
    restart(bridge)
    again(bridge, phone, session_id)
    phone.send("session_interrupt", {"session_id": session_id})
    phone.expect("stream_end", session_id=session_id, finish_reason="stop", interrupted=True)
    end(phone, session_id)


def test_an_agent_that_ends_while_no_bridge_is_there(
    bridge: Bridge, phone: Phone, script: Script
) -> None:
    session_id = begin(bridge, phone, agent="plain")
    say(phone, session_id, "/rate n 60000 100")
    phone.expect("stream_chunk", session_id=session_id)
    pid = int(script.lines("new")[-1]["pid"])
    bridge.kill()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid))
    bridge.start()
    wait_status(bridge, session_id, "error")
    again(bridge, phone, session_id)
    assert "ended by signal 9" in told_of_errors(phone, session_id)[0]
    end(phone, session_id)


HOST = "The process that ran the agent was ended."


def kill_host(bridge: Bridge) -> None:
    [host] = bridge.hosts()
    host.kill()


def kill_host_without_bridge(bridge: Bridge) -> None:
    bridge.kill()
    kill_host(bridge)
    bridge.start()


def stop_host(bridge: Bridge) -> None:
    [host] = bridge.hosts()
    host.suspend()
    restart(bridge)


def kill_bridge_behind_host(bridge: Bridge) -> None:
    [host] = bridge.hosts()
    bridge.running.send_signal(signal.SIGSTOP)
    host.kill()
    restart(bridge)


@pytest.mark.parametrize(
    "fault", [kill_host, kill_host_without_bridge, stop_host, kill_bridge_behind_host]
)
def test_a_host_that_is_killed_or_stands_still(
    bridge: Bridge, phone: Phone, script: Script, fault: Callable[[Bridge], None]
) -> None:
    """Nothing of its agent is left, the session says so, and can be resumed."""
    session_id = begin(bridge, phone, agent="plain")
    say(phone, session_id, "/spawn")
    wait_until(lambda: len(script.processes()) >= 3)
    wait_until(lambda: bridge.session(session_id)["turn"] == "idle")
    fault(bridge)
    script.assert_gone()
    wait_until(lambda: status(bridge, session_id) in ("paused", "error"))
    phone.close()
    phone.ready()
    ready = start(phone, bridge.root, session_id, agent="plain", resume=True)
    assert ready["type"] == "session_ready", ready
    end(phone, session_id)
    script.assert_gone()


def test_no_connection_is_left_to_the_garbage_collector(tmp_path: Path, script: Script) -> None:
    """A number that it freed, in any thread, it took out of the loop: a new connection had it."""
    with quick_bridge(tmp_path, script, first="import gc\ngc.disable()\n") as bridge:
        process = psutil.Process(bridge.running.pid)
        phone = Phone(bridge.port, bridge.device_token()).ready()

        def open_sockets() -> int:
            return len(process.net_connections("unix"))

        first = begin(bridge, phone, agent="plain")
        without_a_host = open_sockets() - 1
        end(phone, first)
        for fault in (None, kill_host) * 4:
            session_id = begin(bridge, phone, agent="plain")
            if fault:
                fault(bridge)
                wait_status(bridge, session_id, "error")
            end(phone, session_id)
            wait_until(lambda: open_sockets() == without_a_host)


def test_what_lies_in_the_hosts_directory_holds_no_start_up(bridge: Bridge, phone: Phone) -> None:
    """A file, a link, a socket that nobody listens on: planted, or left over."""
    hosts = bridge.data / "hosts"
    wait_until(lambda: not [*hosts.glob("*.socket")])  # of the tests before
    session_id = begin(bridge, phone)
    bridge.kill()
    [left] = hosts.glob("*.socket")
    (hosts / "0.socket").write_text("no socket")
    (hosts / "1.socket").symlink_to("/dev/null")
    (hosts / "2.socket").symlink_to(left)
    bridge.start()
    again(bridge, phone, session_id)
    assert status(bridge, session_id) == "active"
    end(phone, session_id)
    wait_until(lambda: not bridge.hosts())


def test_a_bridge_that_is_killed_while_an_agent_starts(
    bridge: Bridge, phone: Phone, script: Script
) -> None:
    """Nothing of that start is left, and the session can be ended."""
    session_id = new_session()
    send_start(phone, bridge.root, session_id, "hangs")
    wait_until(lambda: script.processes() and bridge.hosts())
    restart(bridge)
    script.assert_gone()
    wait_until(lambda: not bridge.hosts())
    assert status(bridge, session_id) == "paused"
    again(bridge, phone, session_id)
    end(phone, session_id)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_socket_of_another_user(bridge: Bridge, phone: Phone) -> None:
    """Nothing is said to who listens there; the session is paused."""
    session_id = begin(bridge, phone, agent="plain")
    bridge.kill()
    [path] = bridge.data.glob("hosts/*.socket")
    [host] = bridge.hosts()
    host.kill()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as planted:
        with chdir(path.parent):  # the path may be too long
            planted.bind(path.name)
        os.seteuid(65534)
        try:
            planted.listen()
        finally:
            os.seteuid(0)
        planted.settimeout(10)
        bridge.start()
        assert status(bridge, session_id) == "paused"
        heard, _ = planted.accept()
        with heard:
            assert heard.recv(100) == b""
    path.unlink()
    phone.close()


def test_doctor_and_the_admin_site_show_them(bridge: Bridge, phone: Phone) -> None:
    def told() -> tuple[str, str]:
        done = bridge.manage("doctor", "--json", check=False)
        [one] = [one for one in json.loads(done.stdout)["checks"] if one["check"] == "hosts"]
        return one["level"], one["text"]

    assert told() == ("ok", "No agent runs.")
    session_id = begin(bridge, phone)
    [host] = bridge.hosts()
    what = f"Agents of sessions that run: 1 (processes {host.pid})."
    assert told() == ("ok", what)
    [socket_path] = bridge.data.glob("hosts/*.socket")
    admin = Admin(bridge, "host-looker")
    listed = admin.page(f"/admin/sessions_app/session/?q={session_id}")
    [pk] = set(re.findall(r"/admin/sessions_app/session/(\d+)/change/", listed))
    assert str(socket_path) in text_of(admin.page(f"/admin/sessions_app/session/{pk}/change/"))
    bridge.kill()
    assert told() == (
        "warning",
        f"{what} They wait for a bridge, and end 120 s after it has gone.",
    )
    bridge.start()
    again(bridge, phone, session_id)
    end(phone, session_id)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    """A bridge whose hosts wait for two seconds only."""
    first = with_limits(HOST_ALONE_SECONDS=2)
    place = tmp_path_factory.mktemp("hasty")
    with quick_bridge(place, script, first=first, BRIDGE_DEMO_SHELL="1") as bridge:
        yield bridge


def test_a_host_ends_when_no_bridge_comes(hasty: Bridge, script: Script) -> None:
    """So does the agent, in order, and all it started; the session is told of as cut off."""
    with hasty.phones() as [phone]:
        session_id = begin(hasty, phone, agent="plain")
        say(phone, session_id, "/spawn")
        wait_until(lambda: len(script.processes()) >= 3)
        call = asked(phone, session_id)
        hosts = hasty.hosts()
        hasty.kill()
        script.assert_gone()
        assert not psutil.wait_procs(hosts, 30)[1]
        hasty.start()
        assert status(hasty, session_id) == "paused"
        again(hasty, phone, session_id)
        told = told_of_errors(phone, session_id)
        assert ["The bridge was restarted" in body for body in told] == [True]
        refused = phone.request(
            "approval_response",
            {"session_id": session_id, "tool_call_id": call, "decision": "approved"},
        )
        assert_refused(refused, "TOOL_ALREADY_DECIDED", False, session_id)


OTHER_VERSION = "from sessions_app.agents.host import wire; wire.VERSION += 1\n"


def test_a_host_of_another_version(bridge: Bridge, phone: Phone, script: Script) -> None:
    """It cannot be spoken with: it is ended, and the session paused, as a stopped one is."""
    assert isinstance(bridge, QuickBridge)
    session_id = begin(bridge, phone, agent="plain")
    bridge.kill()
    bridge.first = OTHER_VERSION
    bridge.start()
    bridge.first = ""
    assert status(bridge, session_id) == "paused"
    script.assert_gone()
    restart(bridge)
    phone.close()


def test_a_database_that_is_older_than_its_host(
    bridge: Bridge, phone: Phone, script: Script
) -> None:
    """What the host has handed over already is not in it: nothing is taken for whole."""
    session_id = begin(bridge, phone, agent="plain")
    bridge.kill()
    database = bridge.data / "bridge.sqlite3"
    older = {name: (bridge.data / name).read_bytes() for name in files_of(database)}
    bridge.start()
    again(bridge, phone, session_id)
    ask(phone, session_id, "hello")
    restart(bridge)  # whoever takes the host over tells it what is stored
    again(bridge, phone, session_id)
    bridge.kill()
    for name in files_of(database):
        (bridge.data / name).unlink()
    for name, data in older.items():
        (bridge.data / name).write_bytes(data)
    bridge.start()
    assert status(bridge, session_id) == "paused"
    script.assert_gone()
    phone.close()


def files_of(database: Path) -> list[str]:
    return [one.name for one in database.parent.glob(f"{database.name}*")]


def test_a_host_that_is_full(tmp_path: Path, script: Script) -> None:
    """It reads its agent no more, until a bridge has stored what it holds; nothing is lost."""
    first = with_limits(HOST_KEPT_BYTES=20_000)
    with quick_bridge(tmp_path, script, first=first) as bridge, bridge.phones() as [phone]:
        session_id = begin(bridge, phone, agent="plain")
        say(phone, session_id, "/rate full 20000 1000000")
        phone.expect("stream_chunk", session_id=session_id)
        bridge.kill()
        [host] = bridge.hosts()
        [agent] = [pid for pid in script.processes() if pid in family(host)]
        wait_until(lambda: is_held_up(agent), "the agent waits to be read")
        assert not [one for one in script.lines("said") if one["label"] == "full"]
        bridge.start()
        again(bridge, phone, session_id)
        ended(bridge, phone, session_id)
        assert [one for one in script.lines("said") if one["label"] == "full"]
        rows = query(bridge.data / "bridge.sqlite3", SAID)
        said = "".join(json.loads(frame)["payload"]["content"] for [frame] in rows)
        assert said == "".join(f"full-{number} " for number in range(20_000))


SAID = "SELECT frame FROM sessions_app_logrow WHERE type = 'stream_chunk' ORDER BY seq"


def family(process: psutil.Process) -> list[int]:
    return [one.pid for one in process.children(recursive=True)]


def is_held_up(pid: int) -> bool:
    """Whether a process writes to its output, and gets nothing out, at ten looks in a row."""
    looks = set()
    for _ in range(10):
        time.sleep(0.05)
        threads = Path(f"/proc/{pid}/task").glob("*/syscall")
        writes = any(one.read_text().startswith("1 0x1 ") for one in threads)
        wrote = re.search(r"wchar: (\d+)", Path(f"/proc/{pid}/io").read_text())
        looks.add((writes, wrote and wrote[1]))
    return len(looks) == 1 and looks.pop()[0]


def test_an_orderly_stop(tmp_path_factory: pytest.TempPathFactory, script: Script) -> None:
    """SIGTERM ends the agents, unless they are to be kept for the next start."""
    with quick_bridge(tmp_path_factory.mktemp("orderly"), script) as bridge:
        with bridge.phones() as [phone]:
            session_id = begin(bridge, phone, agent="plain")
            bridge.stop()
            assert not bridge.hosts()
            script.assert_gone()
        bridge.arguments = ["--keep-agents"]
        bridge.start()
        assert status(bridge, session_id) == "paused"
        with bridge.phones() as [phone]:
            session_id = begin(bridge, phone, agent="plain")
            say(phone, session_id, "/rate n 300 100")
            phone.expect("stream_chunk", session_id=session_id)
        bridge.stop()
        assert bridge.hosts() and script.processes()
        bridge.arguments = []
        bridge.start()
        with bridge.phones() as [phone]:
            phone.join(session_id)
            kept = ended(bridge, phone, session_id)
        assert words(kept).split() == [f"n-{number}" for number in range(300)]
        assert not of(phone, "notification", session_id) or not notifications(
            phone, session_id, "error"
        )


def test_an_upgrade(tmp_path: Path, script: Script) -> None:
    """It has whatever bridge runs leave its agents, once."""
    bridge = Bridge(tmp_path, BRIDGE_ACP_AGENTS=script.setting).start()
    with bridge.phones() as [phone]:
        session_id = begin(bridge, phone, agent="plain")
        say(phone, session_id, "/rate up 1000 100")
        phone.expect("stream_chunk", session_id=session_id)
    assert "The bridge was stopped." in bridge.manage("upgrade").stdout
    bridge.ended()
    bridge.start()
    with bridge.phones() as [phone]:
        phone.join(session_id)
        kept = ended(bridge, phone, session_id)
    assert words(kept).split() == [f"up-{number}" for number in range(1000)]
    assert bridge.stop() == 0
    script.assert_gone()
