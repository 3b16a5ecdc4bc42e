"""Starting and dying (D26, D35, D44). What was acknowledged under load: tests/faults."""

from pathlib import Path

import psutil

from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.samples import hook, new_session, prompt
from tests.faults.quick import QuickBridge


def assert_refused(bridge: Bridge, pairing: Pairing, device_id: str) -> None:
    phone = bridge.phone(pairing, device_id=device_id).connect()
    assert phone.auth()["payload"]["code"] == "AUTH_FAILED"


def test_everything_stands_after_a_kill(mortal: Bridge, sid: str) -> None:
    """A joined phone, a closed session and a device just revoked."""
    closed = new_session()
    mortal.accept(*[hook("SessionStart", one) for one in (sid, closed)], hook("SessionEnd", closed))
    pairing, revoked = mortal.pairing(), mortal.pairing()
    mortal.phone(revoked).ready().close()
    phone = mortal.phone(pairing, device_id="bound").ready()
    phone.join(sid)
    mortal.accept(*[prompt(sid, number) for number in (1, 2, 3)])
    phone.ack(*phone.wait_numbers(sid, [1, 2, 3])[:2])
    # a kill right after an ack may cost the ack: at least once; what a connection has begun with
    # stands
    phone.close()
    phone.ready()
    phone.wait_numbers(sid, [3])
    phone.join(sid)
    mortal.manage("revoke_device", revoked.name)
    mortal.kill()
    assert phone.wait_closed() == 1006
    mortal.start()

    session = mortal.session(sid)
    assert (session["status"], session["hook_count"]) == ("active", 4), "D35: a start closes none"
    assert session["websocket_connected"] is False, "the dead process's joins are gone at once"
    assert mortal.session(closed)["status"] == "closed"
    assert_refused(mortal, pairing, "other")  # D15: a token that was bound is bound
    assert_refused(mortal, revoked, "its own")  # and a crash gives none back
    phone.ready()  # D19: under the same key, which it checks
    phone.wait_numbers(sid, [3])
    mortal.fence(phone)
    assert phone.numbers(sid) == [3], "D27: it continues where it was"


def test_a_port_that_is_taken(shared: Bridge, tmp_path: Path) -> None:
    """The one that listens goes on."""
    done = QuickBridge(tmp_path, BRIDGE_PORT=str(shared.port)).manage("serve", check=False)
    assert done.returncode == 1 and str(shared.port) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert shared.get("/api/v1/health", shared.hook_token).status == 200


def test_listens_where_it_was_told(shared: Bridge, public: Bridge) -> None:
    """BRIDGE_HOST 127.0.0.1 is there alone; so is the plain listener (D19)."""
    sockets = psutil.net_connections("tcp")
    listening = [one.laddr for one in sockets if one.laddr and one.status == psutil.CONN_LISTEN]
    for bridge in (shared, public):
        for port in {int(bridge.settings.get("BRIDGE_PLAIN_PORT", bridge.port)), bridge.port}:
            hosts = {address.ip for address in listening if address.port == port}
            assert hosts and hosts <= {"127.0.0.1", "::1"}
