"""The web client as it is served: headers, size, one hash for all (D53); tests/web has the rest."""

import gzip
import json
import re

import pytest
from django.test import Client

from devices_app.web_client import DIRECTORY

FIRST_LOAD_BYTES, FIRST_LOAD_REQUESTS = 60_000, 25
PAGE_POLICY = {
    **dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'"),
    **dict.fromkeys(("script-src", "style-src", "manifest-src"), "'self'"),
    "img-src": "'self' blob:",
    "connect-src": "'self' wss://localhost:8443",
    "require-trusted-types-for": "'script'",
    "trusted-types": "worker",
}
PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SOURCES = sorted(path for path in DIRECTORY.rglob("*") if path.is_file())


@pytest.fixture
def client() -> Client:
    return Client(headers={"host": "localhost:8443", "accept-encoding": "gzip"})


def page_of(client: Client) -> str:
    return gzip.decompress(client.get("/app/").content).decode()


@pytest.mark.parametrize("path", ["", "approvals", "s/some%2Fsession/files/%2Fhome", "no/such"])
def test_every_screen_is_the_page(path: str, client: Client) -> None:
    response = client.get(f"/app/{path}")
    assert response.status_code == 200 and response["ETag"] and not response.cookies
    assert {name: response[name] for name in PAGE_HEADERS} == PAGE_HEADERS
    assert response["Permissions-Policy"].startswith("camera=(self), ")
    policy = dict(part.split(" ", 1) for part in response["Content-Security-Policy"].split("; "))
    assert policy == PAGE_POLICY
    assert response.content == client.get("/app/").content
    plain = client.get(f"/app/{path}", headers={"accept-encoding": "identity"})
    assert plain.content == gzip.decompress(response.content)


def test_a_file_is_kept_for_good_and_belongs_to_one_version(client: Client) -> None:
    (version,) = set(re.findall(r'"/app/([0-9a-f]{16})/', page_of(client)))
    worker = gzip.decompress(client.get("/app/sw.js").content).decode()
    names = json.loads(worker[worker.index("{") : worker.index(";\n")])["files"]
    assert {"app.js", "later.js", "views/welcome.js", "app.css", "icon-512.png"} <= set(names)
    for path in SOURCES:
        name = path.relative_to(DIRECTORY).as_posix()
        response = client.get(f"/app/{version}/{name}")
        if name not in names:  # or it is part of app.js or later.js
            assert response.status_code == 404
            continue
        if path.suffix not in (".js", ".css"):
            assert gzip.decompress(response.content) == path.read_bytes()
        assert response["Cache-Control"] == "public, max-age=31536000, immutable"
        assert response["Content-Encoding"] == "gzip" and response["Vary"] == "Accept-Encoding"
        assert response["X-Content-Type-Options"] == "nosniff"
        if path.suffix == ".js":
            assert response["Content-Type"] == "text/javascript; charset=utf-8"
    for wrong in (f"{'0' * 16}/app.js", f"{version}/../settings.py", f"{version}/no.js"):
        assert client.get(f"/app/{wrong}").status_code == 404
    assert client.get("/app/").headers["ETag"] == f'"{version}"'


@pytest.mark.parametrize("path", ["/pair", "/app/", "/app/0123456789abcdef/app.js"])
def test_pages_are_only_read(path: str) -> None:
    for method in ("post", "delete", "options"):
        response = getattr(Client(enforce_csrf_checks=True), method)(path)
        assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")


def test_the_first_load_is_small(client: Client) -> None:
    """The page and what it names, which imports nothing: what a browser asks for by itself."""
    page = client.get("/app/")
    named = re.findall(r'(?:href|src)="(/app/[^"]+)"', page_of(client))
    names = {name for name in named if not name.endswith("/icon-180.png")}  # of the Home Screen
    loaded = {name: client.get(name) for name in names}
    imports = {
        name: re.findall(rb'\b(?:from|import) "(\.[^"]+)"', gzip.decompress(one.content))
        for name, one in loaded.items()
        if name.endswith(".js")
    }
    assert set(map(len, imports.values())) == {0}, "no round trip to find one"
    assert len(loaded) + 1 <= FIRST_LOAD_REQUESTS
    size = len(page.content) + sum(len(response.content) for response in loaded.values())
    assert size <= FIRST_LOAD_BYTES
