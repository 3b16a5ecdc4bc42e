"""Check the running bridge: health, tokens, certificate, clock, address, proxy."""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

from bridge_project import __version__
from bridge_project.kernel import limits
from bridge_project.kernel.config import ConfError
from bridge_project.network import server_address, transport
from bridge_project.network.authority import fingerprint, permits
from bridge_project.network.certificate_files import Certificates, pin_of, read_configured
from bridge_project.network.certificates import wanted_names
from bridge_project.network.transport import MODE_WORDS
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import PAGE, Snapshot, fetch

GIVEN_ENDS_SOON: Final = timedelta(days=14)
OWN_ENDS_SOON: Final = timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS - 1)  # should be renewed
SET_CLOCK: Final = "sudo timedatectl set-ntp true"


def running(seen: Snapshot) -> Finding:
    """Check that this very bridge runs and is healthy (D48)."""
    where = f" at {seen.local_url}" if seen.local_url else ""
    if seen.health is None and seen.holder:
        text = f"Process {seen.holder} holds {seen.conf.bridge_data_dir} but does not answer"
        return broken(f"{text}{where}: {seen.trouble}.", f"kill {seen.holder}", seen.start())
    if seen.health is None:
        return broken(f"It does not run{where}: {seen.trouble}.", seen.start())
    status, body = seen.health.status, seen.health.body
    if status == 503:
        bad = [name for name, word in body.get("checks", {}).items() if word != "healthy"]
        return broken(f"It runs{where} but is not well: {', '.join(bad)}.", seen.log_tail)
    version = body.get("version", f"unknown: it answers {status}")
    if version != __version__ and "version" in body:
        text = f"It runs{where} (process {seen.holder}) and is version {version};"
        return warning(f"{text} this is {__version__}.", seen.make("upgrade"))
    return ok(f"It runs{where} (process {seen.holder}, version {version}).")


def tokens(seen: Snapshot) -> list[Finding]:
    """Check that the bridge knows the tokens set in this terminal."""
    found = []
    for name, status in seen.statuses.items():
        token = name.replace("_", " ")
        if status in (401, 403):
            text = f"The bridge refuses the {token} that is set here: it uses another one."
            with_this = f"or stop the bridge and start it with this: {seen.start()}"
            found.append(broken(text, f"{seen.without(f'BRIDGE_{name.upper()}')}   # {with_this}"))
        elif status != 429:  # which says nothing about the token
            found.append(ok(f"The bridge takes the {token}."))
    return found


def certificate(seen: Snapshot) -> Finding:
    """Check the certificate's dates, key and names, by its files."""
    conf = seen.conf
    path, key_path, soon = conf.bridge_tls_cert, conf.bridge_tls_key, GIVEN_ENDS_SOON
    renew = _renewal(path) if path else seen.start()
    again = "Set BRIDGE_TLS_CERT and BRIDGE_TLS_KEY to a certificate chain and its key, both PEM."
    if path is None or key_path is None:
        directory = conf.bridge_data_dir / "tls"
        path, key_path, soon = directory / "server.crt", directory / "server.key", OWN_ENDS_SOON
        again = f"rm -f '{path}' '{key_path}' && {renew}   # the last resort: pair all again"
        if seen.recorded is None and not path.exists():
            return warning("There is none yet: the first start makes it.", renew)
    try:
        found = read_configured(path, key_path)
    except ConfError as error:
        return broken(f"{str(error).partition(': ')[2]}.", renew, again)
    return _contents(seen, found, soon, renew)


def _renewal(path: Path) -> str:
    """Return how to renew a given certificate, which certbot keeps or somebody else."""
    if "letsencrypt" in path.parts:
        return "sudo certbot renew --reuse-key"
    look = f"openssl x509 -noout -issuer -enddate -in {shlex.quote(str(path))}"
    return f"{look}   # renew it where it is from, with the same key"


def _contents(seen: Snapshot, found: Certificates, soon: timedelta, renew: str) -> Finding:
    """Check dates, key and names of a certificate that can be read."""
    conf, now = seen.conf, datetime.now(UTC)
    chain = x509.load_pem_x509_certificates(found.chain.read_bytes())
    if now < (begins := chain[0].not_valid_before_utc):
        text = f"It is valid only from {begins:%Y-%m-%d %H:%M} UTC on: is the clock right?"
        return broken(text, "date", SET_CLOCK)
    if seen.recorded and found.pin != seen.recorded.pin:
        text = "The certificate on disk has another key than the one that devices were paired with."
        files = f"{found.chain} and {found.key}"
        back = f"{seen.start()}   # stopped before, with {files} put back"
        return broken(text, back, f"{seen.make('qr')}   # for each device, without a backup")
    if (left := found.not_after - now) < soon:
        return warning(f"It ends in {left.days} days, on {found.not_after:%Y-%m-%d}.", renew)
    until = f"until {found.not_after:%Y-%m-%d}; its key is in the pairing codes."
    if conf.bridge_tls_cert:
        return ok(f"{found.chain}, {until}")
    if missing := [name for name in wanted_names(conf) if not permits(chain[-1], name)]:  # D55
        text = f"It lacks {', '.join(missing)}: the bridge's authority may not sign that."
        return warning(text, f"{seen.manage('new_ca')}   # phones must then trust the new one")
    return ok(f"Own, {until} The authority's SHA-256 is {fingerprint(chain[-1])}.")


def forwarders(seen: Snapshot) -> list[Finding]:
    """Report forwarders on other machines that say they are behind (D47)."""
    return [
        warning(
            f"The forwarder at {one['address']} is {one['seconds']} s behind; "
            f"{one['waiting']} hook events or more wait there.",
            "python3 producer.py --spool DIR --status   # on that machine",
        )
        for one in seen.info.get("forwarders") or []
    ]


def clock(seen: Snapshot) -> Finding:
    """Check the clock against the last start; a wrong one breaks certificates."""
    now, started = datetime.now(UTC), server_address.path(seen.conf)
    if started.exists() and started.stat().st_mtime > now.timestamp() + 60:
        return broken("It is before the bridge's last start: it was set back.", "date", SET_CLOCK)
    return ok(f"{now:%Y-%m-%d %H:%M:%S} UTC.")


def address(seen: Snapshot) -> Finding | None:
    """Report who can reach the address in pairing codes (D20), and check it here."""
    conf = seen.conf
    if seen.recorded is None:
        return None
    url = seen.recorded.base_url
    kind = transport.mode_of_url(url, conf.bridge_tunnel_domains)
    text = f"{url}: {MODE_WORDS[kind]}."
    if kind == "misconfigured":
        return broken(text, seen.start(BRIDGE_PUBLIC_URL="https://…"))
    if seen.health is not None and (trouble := reach(seen, url, seen.recorded.pin)):
        return trouble
    if kind == "local_only":
        own = f"{seen.without('BRIDGE_PUBLIC_URL')}; " if conf.bridge_public_url else ""
        wider = own + seen.start(BRIDGE_HOST="auto")
        return warning(text, f"{wider}   # on a machine that is connected to a network")
    return ok(text)


def reach(seen: Snapshot, url: str, pin: str) -> Finding | None:
    """Fetch a page by the public address, without a token."""
    elsewhere = f"curl -vk {url}{PAGE}   # from another machine of that network"
    try:
        there = fetch(url, PAGE)
    except OSError as error:  # only a warning: some networks do not route back to the sender
        return warning(f"{url} cannot be reached from this machine: {error}.", elsewhere)
    if there.body.get("code") == "INSECURE_TRANSPORT":
        text = f"{url}: the proxy there does not send X-Forwarded-Proto: https"
        return broken(
            f"{text}, or its address is not in BRIDGE_TRUSTED_PROXIES.",
            "proxy_set_header X-Forwarded-Proto $scheme;   # nginx; Caddy sends it by itself",
        )
    if there.status not in (200, 429):
        return warning(f"{url} answers {there.status}, which is not the bridge.", elsewhere)
    if pin_of(there.certificate) != pin:
        text = (
            f"{url} shows another key than the pairing codes promise: clients that check it refuse"
        )
        given = f"{seen.start(BRIDGE_TLS_CERT='…', BRIDGE_TLS_KEY='…')}   # the proxy's"
        return warning(f"{text}; the web client asks only whether the browser trusts it.", given)
    return None


def proxy(seen: Snapshot) -> Finding | None:
    """Check the plain port's settings (D19); ``address`` checks what the proxy sends."""
    conf, port = seen.conf, seen.conf.bridge_plain_port
    if port is None:
        return None
    loopback = transport.parse_address("127.0.0.1")
    if not any(loopback in network for network in conf.bridge_trusted_proxies):
        text = f"Port {port} refuses everything: it is on 127.0.0.1, where no proxy is trusted."
        return broken(text, seen.start(BRIDGE_TRUSTED_PROXIES="127.0.0.1"))
    if not conf.bridge_public_url:
        text = "BRIDGE_PUBLIC_URL does not name the proxy, so pairing codes lead past the proxy."
        return warning(text, seen.start(BRIDGE_PUBLIC_URL="https://…"))
    return ok(f"Port {port} accepts only what a local proxy reports as https.")
