"""The data directory on another machine, under another path, host name and user, and on a disk that
takes nothing (D19, D44, D46).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509

from tests.attack.test_environments import NOBODY, as_user
from tests.conformance.bridge import Bridge
from tests.conformance.raw import RawSocket
from tests.conformance.samples import new_session, prompt
from tests.faults.hosts import bridge_on, hosts
from tests.faults.quick import QuickBridge

__all__ = ["as_user"]
NAME = "elsewhere-7"
RENAMED = ["unshare", "--uts", "sh", "-c", f'hostname {NAME}; exec "$@"', "sh"]
# What writes, and what only reads or does nothing when there is nothing to do.
WRITING = {
    "serve": [],
    "backup": [],
    "restore": ["BACKUP"],
    "mint_pairing_qr": ["--name", "new"],
    "revoke_device": ["known"],
    "make_admin": ["--username", "admin"],
    "new_ca": ["--yes"],
    "install_hooks": ["--settings", "SETTINGS", "--yes"],
    "upgrade": [],
    "uninstall": ["--data", "remove"],
}
READING: dict[str, list[str]] = {"list_devices": [], "doctor": [], "prune": []}


def test_another_machine_and_another_user(as_user: list[str]) -> None:
    """What waited arrives there, by the same key and tokens; the certificate has the new name."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user, and a machine another name")
    with tempfile.TemporaryDirectory(prefix="bridge-moved-") as place, ExitStack() as ending:
        old = QuickBridge(Path(place) / "old")
        old.start()
        ending.callback(old.kill)
        phone, sid = old.phone(), new_session()
        phone.ready().close()
        old.accept(*[prompt(sid, number) for number in range(3)])
        assert old.stop() == 0
        new = Bridge(
            Path(place) / "other path" / "new",
            BRIDGE_HOOK_TOKEN=old.hook_token,
            BRIDGE_ADMIN_TOKEN=old.admin_token,
            HOME=place,
        )
        shutil.move(old.data, new.data)
        for path in (Path(place), *Path(place).rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        new.enter = [*RENAMED, *as_user]
        new.start()
        ending.callback(new.kill)
        phone.port = new.port
        phone.ready()
        phone.join(sid)
        phone.wait_numbers(sid, range(3))
        phone.close()
        socket = RawSocket(new.port)
        leaf = x509.load_der_x509_certificate(socket.socket.getpeercert(binary_form=True))  # type: ignore[attr-defined]
        socket.close()
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert f"{NAME}.local" in names.get_values_for_type(x509.DNSName)
        assert all(path.stat().st_uid == NOBODY for path in new.data.rglob("*"))


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Bridge]:
    """A bridge that has run, whose data directory is mounted read-only now."""
    with hosts(1) as [host]:
        more = {"DJANGO_SUPERUSER_PASSWORD": "a long password", "HOME": str(tmp_path)}
        bridge = bridge_on(host, tmp_path / "bridge", **more)
        bridge.data.mkdir()
        host.mount(bridge.data, "64m")
        bridge.start()
        bridge.mint("--name", "known")
        assert bridge.stop() == 0
        bridge.manage("backup", str(tmp_path / "kept.tar.gz"))
        mount = ["mount", "-o", "remount,bind,ro", str(bridge.data)]
        subprocess.run([*host.enter, *mount], check=True)
        yield bridge


def test_a_directory_that_takes_nothing(read_only: Bridge, tmp_path: Path) -> None:
    """What would write says in one line that it cannot; what reads does; nothing is a traceback."""
    bridge = read_only
    given = {"BACKUP": tmp_path / "kept.tar.gz", "SETTINGS": bridge.data / "settings.json"}
    failed = {}
    for command, words in (WRITING | READING).items():
        done = bridge.run(["manage.py", command, *[str(given.get(word, word)) for word in words]])
        said = done.stderr.strip().splitlines()
        if "Traceback" in done.stderr or (
            command in WRITING and (done.returncode == 0 or len(said) != 1)
        ):
            failed[command] = (done.returncode, said)
        assert "Start the bridge once" not in done.stderr, done.stderr
    assert not failed, failed
