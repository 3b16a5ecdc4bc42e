"""Serve the web client at `/app/`: one page for all screens, and its files (D53).

The files are read once and named by the hash of them all, so that a browser never mixes two
versions and may keep each for good. Their comments and indents stay here, and the modules of the
first screen are joined to one, as are those that follow it: each request takes a round trip.
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
from bridge_project.kernel.place import short

DIRECTORY: Final = Path(__file__).parent / "client"
# what is joined: the first screen, and what is loaded after it
START: Final = "app.js"
LATER: Final = "later.js"
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

# what Biome's format leaves of the forms that a module may have
_IMPORT: Final = re.compile(r'^(import|export) \{([^}]*)\} from "(\.[^"]+)";$', re.MULTILINE)
_LAZY: Final = re.compile(r'(?<=\bimport\(")(\.[^"]+)(?="\))')
_EXPORT: Final = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)
# a block, a line, and the end of a line
_COMMENT: Final = re.compile(
    r"""^ */\*\*(?:(?!\*/)[\s\S])*\*/\n|/\*\* @[^*]*\*/ |^ *//.*\n|(?<=[;,{([]) // [^"'`\n]*$""",
    re.MULTILINE,
)
_COMMAND: Final = re.compile(r"“make (\w+)”")
_CSS_COMMENT: Final = re.compile(r"^ */\*[\s\S]*?\*/\n", re.MULTILINE)
_INDENT: Final = re.compile(r"^ +", re.MULTILINE)


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
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:;"
        f" manifest-src 'self'; connect-src 'self' wss://{request.get_host()}; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script';"
        " trusted-types worker"
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
        path.relative_to(DIRECTORY).as_posix(): _read(path)
        for path in sorted(DIRECTORY.rglob("*"))
        if path.is_file() and not path.name.endswith(DECLARATIONS)
    }
    digest = hashlib.sha256()
    for name, content in found.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = digest.hexdigest()[:16]
    base = f"/app/{version}/"
    texts = {name: _bare(name, found[name].decode()) for name in found if _is_code(name)}
    bundles: dict[str, str] = {}  # module → the file that it is in
    for bundle in (START, LATER):
        names = [name for name in _imports(texts, bundle) if name not in bundles]
        bundles.update(dict.fromkeys(names, bundle))
    code = {
        name: _led_to(name, text, bundles) for name, text in texts.items() if name not in bundles
    }
    code.update((bundle, _joined(texts, bundles, bundle)) for bundle in (START, LATER))
    found = {name: content for name, content in found.items() if name not in bundles}
    found.update((name, text.encode()) for name, text in code.items())
    found[PAGE] = found[PAGE].replace(b"{base}", base.encode())
    files = [name for name in found if name not in (PAGE, WORKER)]
    about = json.dumps({"version": version, "files": files})
    found[WORKER] = f"self.CLIENT = {about};\n{code[WORKER]}".encode()
    return version, {name: _file(name, content) for name, content in found.items()}


def _read(path: Path) -> bytes:
    """Return a file, whose “make …” is how this bridge's commands are typed."""
    content = path.read_bytes()
    if not path.name.endswith(".js"):
        return content
    return _COMMAND.sub(lambda found: f"“{short(found[1])}”", content.decode()).encode()


def _is_code(name: str) -> bool:
    return name.endswith((".js", ".css"))


def _bare(name: str, text: str) -> str:
    """Return a file without its comments and indents; no text in it spans lines."""
    text = (_CSS_COMMENT if name.endswith(".css") else _COMMENT).sub("", text)
    return _INDENT.sub("", text)


def _target(name: str, path: str) -> str:
    """Return the file that `name` imports by a path."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _imports(texts: Mapping[str, str], start: str) -> list[str]:
    """Return `start` and what it imports, each module behind those that it imports."""
    names: list[str] = []

    def add(name: str, by: tuple[str, ...]) -> None:
        assert name not in by, f"{name} imports itself through {by}"
        for found in _IMPORT.finditer(texts[name]):
            add(_target(name, found[3]), (*by, name))
        if name not in names:
            names.append(name)

    add(start, ())
    return names


def _joined(texts: Mapping[str, str], bundles: Mapping[str, str], bundle: str) -> str:
    """Return one module of several: each a function that returns what it exports."""
    head, body = set[str](), ""
    for name in (name for name, its in bundles.items() if its == bundle):

        def local(found: re.Match[str], name: str = name) -> str:
            if found[1] == "export":
                return ""  # its own module does that
            target = _target(name, found[3])
            if (other := bundles[target]) != bundle:
                head.add(f'import * as {_variable(other)} from "./{other}";\n')
                target = other
            return f"const {{{found[2].replace(' as ', ': ')}}} = {_variable(target)};"

        def lazy(found: re.Match[str], name: str = name) -> str:
            return _path(bundle, _target(name, found[1]), bundles)

        exports = ", ".join(found[2] for found in _EXPORT.finditer(texts[name]))
        text = _EXPORT.sub(r"\1 \2", _IMPORT.sub(local, texts[name]))
        text = _LAZY.sub(lazy, text)
        body += f"const {_variable(name)} = (() => {{{text}return {{{exports}}};\n}})();\n"
        body += f"export const {{{exports}}} = {_variable(name)};\n" if exports else ""
    return "".join(sorted(head)) + body


def _variable(name: str) -> str:
    """Return what a bundle calls a module."""
    return "$" + re.sub(r"\W", "_", name)


def _led_to(name: str, text: str, bundles: Mapping[str, str]) -> str:
    """Return a module that imports the bundles in place of what is in them."""

    def lead(found: re.Match[str]) -> str:
        path = _path(name, _target(name, found[3]), bundles)
        return f'{found[1]} {{{found[2]}}} from "{path}";'

    return _IMPORT.sub(lead, text)


def _path(name: str, target: str, bundles: Mapping[str, str]) -> str:
    """Return by which path a file imports another one, or the bundle that has it."""
    path = posixpath.relpath(bundles.get(target, target), posixpath.dirname(name) or ".")
    return path if path.startswith(".") else f"./{path}"


def _file(name: str, content: bytes) -> File:
    kind = TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0]
    assert kind is not None, name
    is_text = kind.startswith("text/") or kind.endswith(("json", "+xml"))
    return File(
        content=content,
        compressed=gzip.compress(content, 9, mtime=0),
        content_type=f"{kind}; charset=utf-8" if is_text else kind,
    )
