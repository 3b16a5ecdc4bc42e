"""Write the text that `serve` prints when it starts, without tokens."""

from typing import Final

from bridge_project.kernel.config import Conf
from bridge_project.network import interfaces, transport
from bridge_project.network.certificate_files import Certificates
from bridge_project.network.server_address import Address
from bridge_project.network.transport import ConnectionMode
from bridge_project.operations.startup import make_command

MODE_WORDS: Final = {
    ConnectionMode.LOCAL_ONLY: "this machine only; no phone can reach it",
    ConnectionMode.PRIVATE_NETWORK: "devices in the same private network",
    ConnectionMode.SECURE_REMOTE: "devices in your mesh, or through your tunnel",
    ConnectionMode.DIRECT_PUBLIC: "the public internet; each device must acknowledge that first",
    ConnectionMode.MISCONFIGURED: "misconfigured: BRIDGE_PUBLIC_URL is not an https address, so"
    " every device is rejected until it is corrected",
}


def banner(conf: Conf, certificates: Certificates, here: Address, code: str = "") -> str:
    """Return its lines: addresses, who reaches them, files, a code, next steps."""
    others: list[str] = []
    if not conf.bridge_public_url and conf.bridge_host in transport.EVERYWHERE:
        found = set(interfaces.local_addresses()) - {"127.0.0.1", "::1"}
        there = sorted(one for one in found if transport.accepts_on(conf.bridge_host, one))
        urls = (transport.base_url(conf, host) for host in ("localhost", *there))
        others = [url for url in urls if url != here.base_url]
    mode = transport.mode_of_url(here.base_url, conf.bridge_tunnel_domains)
    kind = "own" if certificates.ca else "BRIDGE_TLS_CERT"
    until, fingerprint = f"{certificates.not_after:%Y-%m-%d}", certificates.fingerprint[:16]
    rows = [
        ("Address", f"{here.base_url}   WebSocket: {here.ws_url}"),
        ("", f"also {', '.join(others)}" if others else ""),
        ("Web client", f"{here.base_url}/app/ (pair with a code first)"),
        ("Reached by", MODE_WORDS[mode]),
        ("Certificate", f"{kind}, until {until}, SHA-256 {fingerprint}…"),
        ("Data", str(conf.bridge_data_dir)),
        ("Hook token", _token_place(conf, "hook_token")),
        ("Admin token", _token_place(conf, "admin_token")),
    ]
    lines = ["The bridge is running.", ""]
    lines += [f"  {name:<12} {value}" for name, value in rows if value]
    if code:
        lines += ["", code.rstrip("\n"), "", f"Another code: {make_command(conf, 'qr')}"]
    connect = f"{make_command(conf, 'hooks')}   (connects the coding agent on this machine)"
    lines += ["", f"Next, in a second terminal: {connect}", "To stop: Ctrl-C"]
    return "\n".join(lines)


def _token_place(conf: Conf, name: str) -> str:
    given = getattr(conf, f"bridge_{name}")
    return f"the setting BRIDGE_{name.upper()}" if given else str(conf.secret_path(name))
