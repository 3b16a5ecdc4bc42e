"""Ask the bridge of this container for its health, over TLS and with the pin.

It runs in the bridge's directory, with the bridge's settings.
"""  # noqa: INP001 - a file for an image, no package

from __future__ import annotations

import http.client
import os
import ssl
import sys
from urllib.parse import urlsplit

sys.path.insert(0, os.getcwd())

from bridge_project.kernel.config import ConfError, load
from bridge_project.network import server_address
from hooks_app.producer.https import spki_sha256

SECONDS = 8


def ask() -> str:
    """Return what is wrong; empty when nothing is."""
    conf = load()
    here = server_address.recorded(conf)
    if here is None:
        return "the bridge has not started yet"
    context = ssl.create_default_context()
    # the pin is compared instead, before the token is sent
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    parts = urlsplit(here.local_ws_url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "127.0.0.1", parts.port or 443, timeout=SECONDS, context=context
    )
    try:
        connection.connect()
        certificate = connection.sock.getpeercert(binary_form=True)
        if certificate is None or spki_sha256(certificate) != here.pin:
            return "what answers there is not this bridge"
        connection.request(
            "GET",
            "/api/v1/health",
            headers={"Authorization": f"Bearer {conf.secret('hook_token')}"},
        )
        answer = connection.getresponse()
        return (
            ""
            if answer.status == 200
            else f"{answer.status} {answer.read(500).decode(errors='replace')}"
        )
    finally:
        connection.close()


def main() -> None:
    try:
        wrong = ask()
    except (OSError, http.client.HTTPException, ConfError) as error:
        wrong = f"{type(error).__name__}: {error}"
    sys.exit(wrong or 0)


if __name__ == "__main__":
    main()
