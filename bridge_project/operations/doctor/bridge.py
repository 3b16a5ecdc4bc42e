"""The running bridge: does it answer, with which certificate and clock, who can reach it, and does
a proxy in front do its part (D19, D20).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf
from bridge_project.network import server_address, transport
from bridge_project.network.transport import ConnectionMode
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import PAGE, Look, Reached, fetch, words
from bridge_project.operations.startup import MODE_WORDS, make_command, mode
from bridge_project.terminal.client import pin_of

GIVEN_ENDS_SOON: Final = timedelta(days=14)
# a bridge that runs has renewed it by then
OWN_ENDS_SOON: Final = timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS - 1)
CLOCK_NOTED_SECONDS: Final = 2.0
SET_CLOCK: Final = "sudo timedatectl set-ntp true"


def run(conf: Conf) -> str:
    return make_command(conf, "run")


def log_tail(conf: Conf) -> str:
    return f"tail -n 20 '{conf.bridge_data_dir}/logs/bridge.log'"


def running(seen: Look) -> list[Finding]:
    """Is it there, is it ours, is it well (D48)."""
    conf, where = seen.conf, seen.local_url
    if seen.health is not None:
        return [_health(seen, seen.health)]
    if seen.served:
        return [
            broken(
                "bridge",
                f"{where}: {seen.trouble}, so no token was sent to it.",
                f"{run(conf)}   # after whatever listens there was stopped",
            )
        ]
    if seen.holder:
        at = f" at {where}" if where else ""
        return [
            broken(
                "bridge",
                f"Process {seen.holder} holds {conf.bridge_data_dir} but does not answer{at}: {seen.trouble}.",
                f"kill {seen.holder}",
                run(conf),
            )
        ]
    return [
        broken(
            "bridge",
            f"It does not run{f' at {where}' if where else ''}: {seen.trouble}.",
            run(conf),
        )
    ]


def _health(seen: Look, health: Reached) -> Finding:
    who = f"{seen.local_url}{f', process {seen.holder}' if seen.holder else ''}"
    if health.status == 503:
        checks = health.body.get("checks")
        parts = (
            [name for name, word in checks.items() if word != "healthy"]
            if isinstance(checks, dict)
            else []
        )
        return broken(
            "bridge",
            f"It runs ({who}) but is not well: {', '.join(parts) or 'it does not say why'}.",
            log_tail(seen.conf),
        )
    if health.status != 200:
        return ok("bridge", f"It answers ({who}), with {health.status}.")
    up = timedelta(seconds=int(health.body.get("uptime_seconds", 0)))
    return ok("bridge", f"It runs ({who}, version {health.body.get('version')}, for {up}).")


def tokens_taken(seen: Look) -> list[Finding]:
    """Does the bridge that runs know the tokens that the settings here name: another terminal may
    have other settings.
    """
    wrong = [name for name, status in seen.statuses.items() if status in (401, 403)]
    limited = [
        name for name, status in seen.statuses.items() if status == 429 and name not in wrong
    ]
    found = [
        broken(
            "tokens",
            f"The bridge that runs does not take the {name.replace('_', ' ')} that is set here: it was started with another one.",
            f"unset BRIDGE_{name.upper()}   # or give the bridge the same: stop it with Ctrl-C, then {run(seen.conf)}",
        )
        for name in wrong
    ]
    found += [
        warning(
            "tokens",
            f"The {name.replace('_', ' ')} could not be tried: too many requests in the last minute.",
            "sleep 60",
        )
        for name in limited
    ]
    if found or not seen.statuses:
        return found
    return [
        ok(
            "tokens",
            f"The bridge takes the {' and the '.join(name.replace('_', ' ') for name in seen.statuses)}.",
        )
    ]


# -- the certificate -------------------------------------------------------------------------------


def certificate(seen: Look) -> list[Finding]:
    """The certificate on disk, its dates and key, and whether it is what is served and what the
    pairing codes promise (D19, D43).
    """
    conf = seen.conf
    own = conf.bridge_tls_cert is None
    path = conf.bridge_tls_cert or conf.bridge_data_dir / "tls" / "server.crt"
    key_path = conf.bridge_tls_key or conf.bridge_data_dir / "tls" / "server.key"
    try:
        leaf = x509.load_pem_x509_certificates(path.read_bytes())[0]
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        fits = key.public_key() == leaf.public_key()
    except FileNotFoundError as error:
        if own and seen.recorded is None:
            return [
                warning("certificate", "There is none yet: the first start makes it.", run(conf))
            ]
        return [broken("certificate", f"{error.filename} is missing.", _restore(conf, own))]
    except OSError as error:
        return [
            broken(
                "certificate",
                f"{error.filename} cannot be read: {error.strerror}.",
                f"sudo chown \"$(id -u)\" '{error.filename}'",
            )
        ]
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return [
            broken(
                "certificate",
                f"{path} and {key_path.name} are no certificate with its key in PEM.",
                _restore(conf, own),
            )
        ]
    if not fits:
        return [broken("certificate", f"{key_path} is not the key of {path}.", _restore(conf, own))]
    found = [*_dates(conf, leaf, own=own), *_pins(seen, leaf)]
    until = f"{leaf.not_valid_after_utc:%Y-%m-%d}"
    return found or [
        ok(
            "certificate",
            f"{'Own' if own else path}, valid until {until}; its key is the one in the pairing codes.",
        )
    ]


def _restore(conf: Conf, own: bool) -> str:
    if not own:
        return (
            "Set BRIDGE_TLS_CERT and BRIDGE_TLS_KEY to a certificate chain and its key, both PEM."
        )
    tls = conf.bridge_data_dir / "tls"
    return f"rm -f '{tls}/server.crt' '{tls}/server.key' && {run(conf)}   # or restore both from a backup: with a new key every device must be paired again"


def _dates(conf: Conf, leaf: x509.Certificate, *, own: bool) -> list[Finding]:
    now = datetime.now(UTC)
    left = leaf.not_valid_after_utc - now
    renew = run(conf) if own else "sudo certbot renew --reuse-key"
    if now < leaf.not_valid_before_utc:
        return [
            broken(
                "certificate",
                f"It is valid only from {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on: is the clock right?",
                "date",
                SET_CLOCK,
            )
        ]
    if left <= timedelta():
        return [broken("certificate", f"It ended on {leaf.not_valid_after_utc:%Y-%m-%d}.", renew)]
    if left < (OWN_ENDS_SOON if own else GIVEN_ENDS_SOON):
        return [
            warning(
                "certificate",
                f"It ends in {left.days} days, on {leaf.not_valid_after_utc:%Y-%m-%d}.",
                renew,
            )
        ]
    return []


def _pins(seen: Look, leaf: x509.Certificate) -> list[Finding]:
    conf = seen.conf
    promised = seen.recorded.pin if seen.recorded else ""
    der = leaf.public_bytes(serialization.Encoding.DER)
    again = f"{run(conf)}   # after the running one was stopped, and, where there is a backup, its server.crt and server.key were put back"
    if promised and pin_of(der) != promised:
        text = "The certificate on disk has another key than the one that devices were paired with: they will refuse this bridge."
        return [
            broken("certificate", text, again, f"{make_command(conf, 'qr')}   # for each device")
        ]
    if promised and seen.served and pin_of(seen.served) != promised:
        return [
            broken(
                "certificate",
                f"What answers at {seen.local_url} shows another key than this bridge's.",
                again,
            )
        ]
    if seen.served and seen.served != der:
        return [
            warning(
                "certificate",
                "The one on disk is newer than the one that is served; the bridge takes it within a minute.",
                "sleep 60",
            )
        ]
    return []


# -- clock, address, proxy -------------------------------------------------------------------------


def clock(seen: Look) -> list[Finding]:
    """Ours against the bridge's, and against the past: hook events more than five minutes off are
    refused (SPEC Limits).
    """
    ahead = seen.health.ahead if seen.health else None
    if ahead is not None and abs(ahead) >= CLOCK_NOTED_SECONDS:
        text = f"The bridge's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's."
        return [
            (broken if abs(ahead) > limits.TIMESTAMP_SKEW_SECONDS else warning)(
                "clock", text, SET_CLOCK
            )
        ]
    try:
        written = datetime.fromtimestamp(server_address.path(seen.conf).stat().st_mtime, UTC)
    except OSError:
        written = None
    if written is not None and written > datetime.now(UTC) + timedelta(seconds=60):
        return [
            broken(
                "clock",
                f"It is before {written:%Y-%m-%d %H:%M:%S} UTC, when the bridge was last started: the clock was set back.",
                "date",
                SET_CLOCK,
            )
        ]
    agrees = (
        f"agrees with the bridge's to {abs(ahead):.1f} s"
        if ahead is not None
        else "is not before the bridge's last start"
        if written
        else ""
    )
    return [
        ok(
            "clock",
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC{', which ' + agrees if agrees else ''}.",
        )
    ]


def reach(seen: Look) -> list[Finding]:
    """Who can reach the address in the pairing codes (D20), and whether this machine itself can."""
    conf = seen.conf
    if seen.recorded is None:
        return []
    url = seen.recorded.base_url
    kind = mode(conf, url)
    text = f"{url}: {MODE_WORDS[kind]}."
    if kind is ConnectionMode.MISCONFIGURED:
        return [broken("address", text, f"BRIDGE_PUBLIC_URL=https://… {run(conf)}")]
    if kind is ConnectionMode.LOCAL_ONLY:
        return [warning("address", text, _wider(conf))]
    if (trouble := _tried(seen, url)) is not None:
        return [trouble]
    return [ok("address", text)]


def _wider(conf: Conf) -> str:
    if conf.bridge_public_url:
        return f"unset BRIDGE_PUBLIC_URL; {run(conf)}   # or give it the address that phones use"
    if conf.bridge_host == "auto":
        return f"{run(conf)}   # after this machine was connected to a network, or to a mesh"
    return f"BRIDGE_HOST=auto {run(conf)}"


def _tried(seen: Look, url: str) -> Finding | None:
    """Reach the bridge by its public address; no token goes there. A network that does not lead
    back to itself proves nothing, hence only warnings.
    """
    conf = seen.conf
    if seen.health is None or seen.recorded is None:
        return None
    try:
        there = fetch(url, PAGE)
    except OSError as error:
        return warning(
            "address",
            f"{url} cannot be reached from this machine: {words(error)}.",
            f"curl -vk {url}{PAGE}   # from another machine of that network",
        )
    if there.body.get("code") == "INSECURE_TRANSPORT":
        return None  # that is the proxy's matter, which has a check of its own
    if there.certificate and pin_of(there.certificate) != seen.recorded.pin:
        text = f"{url} shows another key than the pairing codes promise: clients that check the pin will refuse it."
        return warning(
            "address",
            text,
            f"BRIDGE_TLS_CERT=… BRIDGE_TLS_KEY=… {run(conf)}   # the proxy's certificate; a provider's tunnel cannot be pinned",
        )
    if there.status not in (200, 429):
        return warning(
            "address",
            f"{url} answers {there.status}, which is not the bridge.",
            f"curl -vk {url}{PAGE}",
        )
    return None


def proxy(seen: Look) -> list[Finding]:
    """What can be known from here of a TLS-terminating proxy: the settings fit together, the plain
    listener answers, the headers arrive (D19).
    """
    conf = seen.conf
    if conf.bridge_plain_port is None:
        if conf.bridge_trusted_proxies and not conf.bridge_public_url:
            return [
                warning(
                    "proxy",
                    "BRIDGE_TRUSTED_PROXIES is set, but neither BRIDGE_PLAIN_PORT nor BRIDGE_PUBLIC_URL.",
                    f"BRIDGE_PUBLIC_URL=https://… {run(conf)}",
                )
            ]
        return []
    if not conf.bridge_trusted_proxies:
        text = f"Port {conf.bridge_plain_port} refuses everything: no proxy is trusted."
        return [broken("proxy", text, f"BRIDGE_TRUSTED_PROXIES=127.0.0.1 {run(conf)}")]
    if not any(
        transport.parse_address("127.0.0.1") in network for network in conf.bridge_trusted_proxies
    ):
        text = f"Port {conf.bridge_plain_port} is on 127.0.0.1, from where BRIDGE_TRUSTED_PROXIES trusts nobody."
        return [broken("proxy", text, f"BRIDGE_TRUSTED_PROXIES=127.0.0.1 {run(conf)}")]
    if seen.health is None:
        return []
    return [
        _plain(conf)
        or _public(conf)
        or ok(
            "proxy",
            f"Port {conf.bridge_plain_port} takes what a proxy here vouches for as https, and nothing else.",
        )
    ]


def _plain(conf: Conf) -> Finding | None:
    url = f"http://127.0.0.1:{conf.bridge_plain_port}"
    try:
        there = fetch(
            url, PAGE, headers={"X-Forwarded-Proto": "https", "X-Forwarded-For": "127.0.0.1"}
        )
    except OSError as error:
        return broken(
            "proxy",
            f"{url}: {words(error)}.",
            f"BRIDGE_PLAIN_PORT={conf.bridge_plain_port} {run(conf)}",
        )
    if there.body.get("code") == "INSECURE_TRANSPORT":
        return broken(
            "proxy",
            f"{url} refuses what is sent with X-Forwarded-Proto: https; the bridge runs with other settings.",
            run(conf),
        )
    return None


def _public(conf: Conf) -> Finding | None:
    if not conf.bridge_public_url.startswith("https://"):
        text = "BRIDGE_PUBLIC_URL does not name the proxy's address, so pairing codes lead past the proxy."
        return warning("proxy", text, f"BRIDGE_PUBLIC_URL=https://… {run(conf)}")
    try:
        there = fetch(conf.bridge_public_url, PAGE)
    except OSError:
        return None  # the check of the address says it
    if there.body.get("code") == "INSECURE_TRANSPORT":
        text = "The proxy does not send X-Forwarded-Proto: https (or its address is not in BRIDGE_TRUSTED_PROXIES): the bridge refuses everything from it."
        return broken(
            "proxy",
            text,
            "proxy_set_header X-Forwarded-Proto $scheme;   # nginx; Caddy sends it by itself",
            "sudo nginx -t && sudo systemctl reload nginx",
        )
    return None
