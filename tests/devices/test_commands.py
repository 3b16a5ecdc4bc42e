"""The commands of D43, as a person or a script runs them."""

import io
import json
import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import time_machine
import zxingcpp
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core.management import CommandError, call_command
from django.db import connection
from PIL import Image

from bridge_project.kernel.config import conf
from bridge_project.network import certificates, server_address
from devices_app import pairing, tokens
from devices_app.models import Device, Token
from tests.conformance.bridge import Bridge, query
from tests.devices.conftest import auth, mint
from tests.faults.quick import bridge_of_module
from tests.run.terminal import Program

QR = zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode)

pytestmark = pytest.mark.django_db

PIN, FINGERPRINT = "a1" * 32, "b2" * 32
LINK = re.compile(
    r"https://192\.168\.1\.20:8443/pair#v=1&token=(bridge_device_[\w-]{43})"
    r"&url=wss://192\.168\.1\.20:8443/api/v1/ws&pin=(?:a1){32}"
)
PASSWORD = "sphinx-of-black-quartz"


def record(address: str) -> None:
    ws_url = f"{address.replace('http', 'ws', 1)}/api/v1/ws"
    server_address.record(conf, server_address.Address(address, ws_url, PIN, FINGERPRINT))


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    record("https://192.168.1.20:8443")
    yield
    server_address.path(conf).unlink(missing_ok=True)


@pytest.fixture
def in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("devices_app.management.commands.mint_pairing_qr.sys", terminal)


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def failure(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert caught.value.returncode == 1
    return str(caught.value)


def decoded(picture: Image.Image) -> str:
    (code,) = zxingcpp.read_barcodes(picture, formats=QR)
    return code.text


def drawn(text: str) -> Image.Image:
    """A picture of a terminal in which the half blocks of a code were printed."""
    lines = [line for line in text.splitlines() if line]
    width = max(map(len, lines))
    halves = [(half, line.ljust(width)) for line in lines for half in ("▀█", "▄█")]
    picture = Image.new("1", (width, len(halves)))
    picture.putdata([block in half for half, line in halves for block in line])
    return picture.resize((width * 6, len(halves) * 6), Image.Resampling.NEAREST)


def token_in(link: str) -> str:
    found = LINK.fullmatch(link)
    assert found, link
    return found[1]


def test_a_link_and_a_picture_to_a_pipe(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    link = run("mint_pairing_qr", "--name", "Ada's phone", "--format", "url").rstrip("\n")
    call_command("mint_pairing_qr", "--name", "Bob's phone", "--format", "png")
    with Image.open(io.BytesIO(capfdbinary.readouterr().out)) as picture:
        links = {"Ada's phone": link, "Bob's phone": decoded(picture)}
    for name, text in links.items():
        found = tokens.identify(token_in(text))
        assert found is not None and found.device is not None and found.device.name == name


@pytest.mark.parametrize("coloured", [False, True])
def test_a_code_in_a_terminal(coloured: bool, request: pytest.FixtureRequest) -> None:
    if coloured:
        request.getfixturevalue("in_a_terminal")
    code, _, words = run("mint_pairing_qr", "--name", "phone").partition("\n\n")
    assert ("\033[" in code) == coloured
    link = decoded(drawn(re.sub(r"\033\[[0-9;]*m", "", code)))
    assert token_in(link)
    assert link in words and "phone" in words and FINGERPRINT in words


def test_an_address_that_no_phone_reaches_is_said() -> None:
    for host, warned in (("127.0.0.1", True), ("192.168.1.20", False), ("bridge.example", False)):
        record(f"https://{host}:8443")
        assert ("no phone can reach it" in run("mint_pairing_qr")) == warned


def test_output_is_for_the_owner_alone(tmp_path: Path) -> None:
    """Also where the file was there, readable by others."""
    target = tmp_path / "qr"
    target.write_text("old")
    target.chmod(0o644)
    assert run("mint_pairing_qr", "--output", str(target)) == ""
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 and target.stat().st_size > 100


def test_what_cannot_be_minted_makes_no_token(in_a_terminal: None) -> None:
    for text in ("", "10", "0m", "-1m", "1w", "1.5h", "10 m", "9999999d", "١m"):
        assert "duration" in failure("mint_pairing_qr", f"--ttl={text}"), text
    assert "duration" in failure("mint_pairing_qr", "--lifetime=1w")
    for name in ("", "  ", "x" * 81, "a\nb", "\033[31mred", "a\u202eb"):
        assert "printable" in failure("mint_pairing_qr", f"--name={name}"), name
    assert "no directory" in failure("mint_pairing_qr", "--output", "/nonexistent/file")
    assert "--output" in failure("mint_pairing_qr", "--format", "png"), "it would garble a terminal"
    record("http://bridge.example")
    assert "BRIDGE_PUBLIC_URL" in failure("mint_pairing_qr"), "devices would be rejected"
    assert not Device.objects.exists() and not Token.objects.exists()


def test_where_serve_has_never_run_the_address_is_worked_out() -> None:
    server_address.path(conf).unlink()
    answer = json.loads(run("mint_pairing_qr", "--format", "json"))
    assert re.fullmatch(rf"wss://[^/]+:{conf.bridge_port}/api/v1/ws", answer["url"])
    assert answer["pin"] == certificates.load_or_renew(conf).pin


def test_the_list() -> None:
    with time_machine.travel(datetime(2026, 5, 4, 2, 52, 1, tzinfo=UTC), tick=False) as clock:
        mint("unused")
        auth(mint("old", lifetime=timedelta(minutes=1))[2])
        clock.shift(timedelta(minutes=10))
        device, _, plain = mint("Ada's phone")
        auth(plain, platform="ios", client_version="1.4.0", address="10.0.0.7")
        mint("手机")
        lines = run("list_devices").splitlines()
    assert [re.split(r" {2,}", line)[1:] for line in lines] == [
        ["NAME", "STATE", "PLATFORM", "VERSION", "LAST SEEN (UTC)", "ADDRESS"],
        ["unused", "void", "-", "-", "-", "-"],
        ["old", "expired", "ios", "1.2.3", "2026-05-04 02:52:01", "192.168.1.7"],
        ["Ada's phone", "paired", "ios", "1.4.0", "2026-05-04 03:02:01", "10.0.0.7"],
        ["手机", "waiting", "-", "-", "-", "-"],
    ]
    assert plain not in "".join(lines) and tokens.digest(plain) not in "".join(lines)
    Device.objects.update(client_version="1.0.0-\033[2J")
    assert "\033" not in run("list_devices")
    pairing.revoke(device)
    assert re.search(rf"(?m)^{device.pk} +Ada's phone +revoked +ios ", run("list_devices"))


def test_which_device_is_meant() -> None:
    """An id goes before a name; what is unknown, ambiguous or revoked changes nothing."""
    for name in ("nobody", "99999999999999999999999"):
        assert "No device" in failure("revoke_device", name)
    twins = [mint("twin")[0] for _ in range(2)]
    for command in (["revoke_device"], ["mint_pairing_qr", "--device"]):
        said = failure(*command, "twin")
        assert "2 devices" in said and all(str(twin.pk) in said for twin in twins)
    other, _, _ = mint(str(twins[0].pk))
    run("revoke_device", str(twins[0].pk))
    assert set(Device.objects.filter(revoked_at=None)) == {twins[1], other}
    assert "was revoked" in failure("mint_pairing_qr", "--device", str(twins[0].pk))
    lost, _, plain = mint("phone")
    auth(plain)
    mint("phone")  # a code that nobody has used, of the bridge's next start
    assert f"phone (#{lost.pk}) is revoked" in run("revoke_device", "phone")


def test_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.introspection, "table_names", list)
    for command in ("mint_pairing_qr", "list_devices", "revoke_device 1", "make_admin"):
        assert "Start the bridge once" in failure(*command.split())


bridge = bridge_of_module()


def test_what_a_command_says_of_itself(bridge: Bridge) -> None:
    """Its help has its own options only, and an error no name of the code."""
    told = bridge.run(["manage.py", "qr", "--help"]).stdout
    assert "--ttl" in told and "--pythonpath" not in told and "--skip-checks" not in told
    failed = bridge.run(["manage.py", "revoke_device", "nobody"])
    assert failed.returncode == 1 and failed.stderr.startswith("No device"), failed


def users(bridge: Bridge) -> set[str]:
    found = "SELECT username, password FROM auth_user WHERE is_superuser AND is_staff"
    rows = query(bridge.data / "bridge.sqlite3", found)
    return {name for name, password in rows if PBKDF2PasswordHasher().verify(PASSWORD, password)}


def test_make_admin_finds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "DJANGO_SUPERUSER_PASSWORD or the first line" in failure("make_admin")


def test_make_admin_asks_in_a_terminal(bridge: Bridge) -> None:
    """Of a script, by its environment: tests/conformance/admin.py."""
    for answers, said in (
        (("ada", "short", "short"), "too short"),
        (("ada", PASSWORD, "other"), "The two are not the same. No user was made."),
        (("", PASSWORD, PASSWORD), f"user admin. Log in at https://127.0.0.1:{bridge.port}/admin/"),
    ):
        with Program(bridge.environment, "make_admin", terminal=True) as program:
            for question, answer in zip(("Name [", "Password (", "again: "), answers, strict=True):
                program.until(question)
                program.say(answer)
            program.until(said)
        assert PASSWORD not in program.shown
    assert "admin" in users(bridge) and "ada" not in users(bridge)
