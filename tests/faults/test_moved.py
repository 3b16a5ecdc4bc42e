"""The data directory on another machine: under another path, host name and user (D19, D44, D46)."""

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509

from tests.attack.test_environments import NOBODY, as_user
from tests.conformance.bridge import Bridge
from tests.conformance.https import presented
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge

__all__ = ["as_user"]
NAME = "elsewhere-7"
RENAMED = ["unshare", "--uts", "sh", "-c", f'hostname {NAME}; exec "$@"', "sh"]


def test_another_machine_and_another_user(as_user: list[str]) -> None:
    """What waited arrives there, by the same key and tokens; the certificate has the new name."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user, and a machine another name")
    with tempfile.TemporaryDirectory(prefix="bridge-moved-") as place, ExitStack() as ending:
        with QuickBridge(Path(place) / "old") as old:
            phone, sid = old.phone(), new_session()
            phone.ready().close()
            old.accept(*[prompt(sid, number) for number in range(3)])
        new = Bridge(Path(place) / "other path" / "new", HOME=place, **old.shared)
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
        leaf = x509.load_der_x509_certificate(presented(new.port))
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert f"{NAME}.local" in names.get_values_for_type(x509.DNSName)
        assert all(path.stat().st_uid == NOBODY for path in new.data.rglob("*"))
