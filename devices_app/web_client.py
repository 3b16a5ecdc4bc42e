"""Serve the web client at `/app/`: one page for all screens, and its files (D53).

The files are read once and named by the hash of them all, so that a browser never mixes two
versions and may keep each for good.
"""

import gzip
import hashlib
import json
import mimetypes
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.utils.http import http_date
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from bridge_project.kernel.errors import BridgeError

DIRECTORY: Final = Path(__file__).parent / "client"
START: Final = "app.js"
PAGE: Final = "index.html"
WORKER: Final = "sw.js"
DECLARATIONS: Final = ".d.ts"  # only the type checker reads them: they are not served
TYPES: Final = {".js": "text/javascript", ".webmanifest": "application/manifest+json"}
FOR_GOOD: Final = "public, max-age=31536000, immutable"
SAFE: Final = {
    "Vary": "Accept-Encoding",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

_IMPORT: Final = re.compile(r'^(?:import|\} from|export .* from) [^;"]*"(\.[^"]+)";$', re.MULTILINE)


class File(NamedTuple):
    content: bytes
    compressed: bytes
    content_type: str


@csrf_exempt
@require_safe
def screen(request: HttpRequest, path: str = "") -> HttpResponse:
    """Serve the page, which reads its own address to know what to show.

    The policy names the WebSocket's host: Safari does not take `'self'` for it.
    """
    version, files = load()
    # worker: the one address that net/served.js registers
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; manifest-src"
        f" 'self'; connect-src 'self' wss://{request.get_host()}; base-uri 'none'; form-action"
        " 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types worker"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
        "Cache-Control": "no-cache",
        # By these two the client knows that it is out of date, or that the phone's clock is wrong.
        "ETag": f'"{version}"',
        "Date": http_date(),
    }
    return _answer(request, files[PAGE], headers)


@csrf_exempt
@require_safe
def worker(request: HttpRequest) -> HttpResponse:
    """Serve the service worker, whose bytes change with any byte of the client."""
    _, files = load()
    policy = "default-src 'none'; connect-src 'self'"
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
    return _answer(request, files[WORKER], headers)


@csrf_exempt
@require_safe
def file(request: HttpRequest, version: str, name: str) -> HttpResponse:
    """Serve one of the client's files; 404 for a file of another version."""
    present, files = load()
    if version != present or name not in files or name in (PAGE, WORKER):
        raise BridgeError("NOT_FOUND")
    return _answer(request, files[name], {"Cache-Control": FOR_GOOD})


def icon(request: HttpRequest) -> str:
    """Return the address of the bridge's icon, which the admin site shows too."""
    version, _ = load()
    return f"/app/{version}/icon.svg"


def _answer(request: HttpRequest, found: File, headers: dict[str, str]) -> HttpResponse:
    if compressed := "gzip" in request.headers.get("Accept-Encoding", ""):
        headers = headers | {"Content-Encoding": "gzip"}
    content = found.compressed if compressed else found.content
    return HttpResponse(content, headers=SAFE | headers | {"Content-Type": found.content_type})


@cache
def load() -> tuple[str, Mapping[str, File]]:
    """Return a version that changes with any byte of the client, and all its files."""
    found = {
        path.relative_to(DIRECTORY).as_posix(): path.read_bytes()
        for path in sorted(DIRECTORY.rglob("*"))
        if path.is_file() and not path.name.endswith(DECLARATIONS)
    }
    digest = hashlib.sha256()
    for name, content in found.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = digest.hexdigest()[:16]
    base = f"/app/{version}/"
    preloads = "\n".join(
        f'<link rel="modulepreload" href="{base}{name}">' for name in _imports(found, START)
    )
    page, code = found[PAGE].decode(), found[WORKER].decode()
    found[PAGE] = page.replace("{base}", base).replace("{preloads}", preloads).encode()
    files = [name for name in found if name not in (PAGE, WORKER)]
    about = json.dumps({"version": version, "files": files})
    found[WORKER] = f"self.CLIENT = {about};\n{code}".encode()
    return version, {name: _file(name, content) for name, content in found.items()}


def _imports(found: Mapping[str, bytes], start: str) -> list[str]:
    """Return the modules that `start` imports, at once or through others."""
    names, todo = {start}, [start]
    while todo:
        name = todo.pop()
        for target in _IMPORT.findall(found[name].decode()):
            module = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if module not in names:
                names.add(module)
                todo.append(module)
    return sorted(names - {start})


def _file(name: str, content: bytes) -> File:
    kind = TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0]
    assert kind is not None, name
    is_text = kind.startswith("text/") or kind.endswith(("json", "+xml"))
    return File(
        content=content,
        compressed=gzip.compress(content, 9, mtime=0),
        content_type=f"{kind}; charset=utf-8" if is_text else kind,
    )
