"""Pair ``watch`` as a device, and keep its token in the data directory (D43, D62)."""

import json
import socket
import uuid
from datetime import timedelta
from typing import Any, Final

from django.db import Error as DatabaseError
from django.db import connection

from bridge_project.kernel.config import Conf
from bridge_project.kernel.data_files import files
from bridge_project.kernel.private_files import write_private_file
from bridge_project.network import server_address
from bridge_project.protocol.types import now_text
from bridge_project.terminal.client import Lost, Refused, Target
from devices_app import pairing, tokens
from devices_app.models import Device

CLAIM_WITHIN: Final = timedelta(days=1)  # the token is on no screen; the bridge may start later


class Identity:
    """Hold the device as which ``watch`` connects; ``known``: its file's content."""

    def __init__(self, conf: Conf) -> None:
        self.conf = conf
        self.path = conf.bridge_data_dir / "watch.json"
        self.known: dict[str, Any] = {}

    def target(self) -> Target:
        """Return the bridge's address and our token; pair if needed. Raises Lost, Refused."""
        here = server_address.recorded(self.conf)
        if here is None:
            where = f"the data directory {self.conf.bridge_data_dir}"
            begun = f"no bridge has been started with {where} yet, or since its restore"
            raise Lost(begun)
        try:
            if not self._is_valid():
                name = f"watch on {socket.gethostname()}"[:70]
                device, _, token = pairing.mint(name, ttl=CLAIM_WITHIN, lifetime=None)
                made = {"token": token, "device": device.pk, "device_id": str(uuid.uuid4())}
                self._write(made | {"paired_at": now_text()})
        except DatabaseError as error:
            raise Lost(f"the database cannot be used yet ({error})") from None
        finally:
            connection.close()
            files.forget_database()  # a restore may put another in its place meanwhile
        url, token = here.local_ws_url or here.ws_url, self.known["token"]
        return Target(url, token, here.pin, self.known["device_id"])

    def remedy(self) -> str:
        """Return how to start a bridge that does not run, else nothing."""
        if server_address.holder(self.conf):
            return ""
        return f" (the bridge does not run: `{server_address.run_command(self.conf)}`)"

    def keep(self, used: str, fresh: str) -> None:
        """Store a fresh token, for the next connection. Raises OSError.

        The old token stays beside it: the bridge accepts it until the fresh one is used, and again
        after a restored backup that does not know the fresh one.
        """
        self._write(self.known | {"token": fresh, "previous": used})

    def _is_valid(self) -> bool:
        """Read the file, and choose the token that the bridge accepts. Raises Refused."""
        try:
            self.known = json.loads(self.path.read_text())
            device_id, given = self.known["device"], self.known["token"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return False
        for token in (given, self.known.get("previous", "")):
            principal = tokens.identify(token)
            if principal is not None and principal.device is not None:
                self.known["token"] = token
                return True
        if Device.objects.filter(pk=device_id).exclude(revoked_at=None).exists():
            name = f"This terminal's device, #{device_id},"
            raise Refused(f"{name} was revoked. To pair it again, remove {self.path}.")
        return False

    def _write(self, known: dict[str, Any]) -> None:
        write_private_file(self.path, json.dumps(known, indent=2).encode() + b"\n")
        self.known = known
