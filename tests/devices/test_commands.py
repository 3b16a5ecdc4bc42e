"""The commands of D43, as a person or a script runs them."""

from __future__ import annotations

import io
import json
import re
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
import zxingcpp
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from PIL import Image

from bridge_project.kernel.config import conf
from bridge_project.network import certificates, server_address
from devices_app import pairing, tokens
from devices_app.models import Device, Token
from tests.devices.conftest import Minted, auth

QR = zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode)

pytestmark = pytest.mark.django_db

HERE = server_address.Address(
    base_url="https://192.168.1.20:8443",
    ws_url="wss://192.168.1.20:8443/api/v1/ws",
    pin="a1" * 32,
    fingerprint="b2" * 32,
)
LINK = re.compile(
    r"https://192\.168\.1\.20:8443/pair#v=1&token=(bridge_device_[\w-]{43})&url=wss://192\.168\.1\.20:8443/api/v1/ws&pin=(?:a1){32}"
)


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    server_address.record(conf, HERE)
    yield
    server_address.path(conf).unlink(missing_ok=True)


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
    """What an independent decoder reads in a picture."""
    codes = zxingcpp.read_barcodes(picture, formats=QR)
    assert len(codes) == 1
    return codes[0].text


def drawn(text: str, *, dark_on_light: bool) -> Image.Image:
    """A picture of a terminal in which the half blocks of a code were printed."""
    lines = [line for line in text.splitlines() if line]
    halves = {" ": (0, 0), "▀": (1, 0), "▄": (0, 1), "█": (1, 1)}
    picture = Image.new("L", (max(map(len, lines)), len(lines) * 2))
    for y, line in enumerate(lines):
        for x, block in enumerate(line):
            for half, filled in enumerate(halves[block]):
                dark = bool(filled) == dark_on_light
                picture.putpixel((x, 2 * y + half), 0 if dark else 255)
    return picture.resize((picture.width * 6, picture.height * 6), Image.Resampling.NEAREST)


def token_in(link: str) -> str:
    found = LINK.fullmatch(link)
    assert found, link
    return found[1]


class TestMint:
    def test_url(self) -> None:
        plain = token_in(
            run("mint_pairing_qr", "--name", "Ada's phone", "--format", "url").rstrip("\n")
        )
        found = tokens.identify(plain)
        assert found is not None and found.device is not None and found.device.name == "Ada's phone"

    def test_png_to_a_pipe(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        call_command("mint_pairing_qr", "--format", "png")
        with Image.open(io.BytesIO(capfdbinary.readouterr().out)) as picture:
            assert tokens.identify(token_in(decoded(picture)))

    @pytest.mark.parametrize("coloured", [False, True])
    def test_terminal(self, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "devices_app.management.commands.mint_pairing_qr.sys",
            SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: coloured)),
        )
        text = run("mint_pairing_qr", "--name", "phone")
        code, _, words = text.partition("\n\n")
        assert ("\033[" in code) == coloured
        link = decoded(drawn(re.sub(r"\033\[[0-9;]*m", "", code), dark_on_light=coloured))
        assert token_in(link)
        assert link in words and "phone" in words and HERE.fingerprint in words

    @pytest.mark.parametrize(
        ("host", "warned"),
        [
            ("localhost", True),
            ("127.0.0.1", True),
            ("192.168.1.20", False),
            ("bridge.example", False),
        ],
    )
    def test_an_address_that_no_phone_reaches_is_said(self, host: str, warned: bool) -> None:
        server_address.record(
            conf,
            server_address.Address(
                f"https://{host}:8443", f"wss://{host}:8443/api/v1/ws", HERE.pin, HERE.fingerprint
            ),
        )
        assert ("no phone can reach it" in run("mint_pairing_qr")) == warned

    def test_output_is_for_the_owner_alone(self, tmp_path: Path) -> None:
        """Also where the file was there, readable by others."""
        target = tmp_path / "qr"
        target.write_text("old")
        target.chmod(0o644)
        assert run("mint_pairing_qr", "--output", str(target)) == ""
        assert stat.S_IMODE(target.stat().st_mode) == 0o600 and target.stat().st_size > 100

    def test_no_such_directory_mints_nothing(self, tmp_path: Path) -> None:
        assert "no directory" in failure(
            "mint_pairing_qr", "--output", str(tmp_path / "no" / "file")
        )
        assert not Token.objects.exists()

    def test_a_picture_into_a_terminal_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "devices_app.management.commands.mint_pairing_qr.sys",
            SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)),
        )
        assert "--output" in failure("mint_pairing_qr", "--format", "png")

    def test_a_duration_that_is_none(self) -> None:
        for text in ("", "10", "0m", "-1m", "1w", "1.5h", "10 m", "9999999d", "١m"):
            assert "duration" in failure("mint_pairing_qr", f"--ttl={text}"), text
        assert "duration" in failure("mint_pairing_qr", "--lifetime=1w")
        assert not Device.objects.exists()

    def test_a_name_that_is_none(self) -> None:
        for name in ("", "  ", "x" * 81, "a\nb", "\033[31mred", "a\u202eb"):
            assert "printable" in failure("mint_pairing_qr", f"--name={name}"), name

    def test_device_that_is_unknown_ambiguous_or_revoked(self, mint: Callable[..., Minted]) -> None:
        assert "No device" in failure("mint_pairing_qr", "--device", "nobody")
        mint("twin")
        revoked = mint("twin")[0]
        assert "2 devices" in failure("mint_pairing_qr", "--device", "twin")
        pairing.revoke(revoked)
        assert "was revoked" in failure("mint_pairing_qr", "--device", str(revoked.pk))

    def test_where_serve_has_never_run_the_address_is_worked_out(self) -> None:
        server_address.path(conf).unlink()
        answer = json.loads(run("mint_pairing_qr", "--format", "json"))
        assert re.fullmatch(rf"wss://[^/]+:{conf.bridge_port}/api/v1/ws", answer["url"])
        assert answer["pin"] == certificates.load_or_renew(conf).pin

    def test_not_where_devices_would_be_rejected(self) -> None:
        server_address.record(
            conf,
            server_address.Address(
                "http://bridge.example", "ws://bridge.example/api/v1/ws", HERE.pin, HERE.fingerprint
            ),
        )
        assert "BRIDGE_PUBLIC_URL" in failure("mint_pairing_qr")
        assert not Device.objects.exists()


class TestList:
    def test_a_table(self, mint: Callable[..., Minted]) -> None:
        with time_machine.travel(datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC), tick=False):
            _, _, plain = mint("Ada's phone")
            auth(plain, platform="ios", client_version="1.4.0", address="10.0.0.7")
            mint("手机")
            lines = run("list_devices").splitlines()
        assert re.split(r" {2,}", lines[0]) == [
            "ID",
            "NAME",
            "STATE",
            "PLATFORM",
            "VERSION",
            "LAST SEEN (UTC)",
            "ADDRESS",
        ]
        assert re.split(r" {2,}", lines[1])[1:] == [
            "Ada's phone",
            "paired",
            "ios",
            "1.4.0",
            "2026-05-04 03:02:01",
            "10.0.0.7",
        ]
        assert re.split(r" {2,}", lines[2])[1:] == ["手机", "waiting", "-", "-", "-", "-"]
        assert plain not in "".join(lines) and tokens.digest(plain) not in "".join(lines)

    def test_what_a_client_says_moves_no_cursor(self, mint: Callable[..., Minted]) -> None:
        device, _, _ = mint()
        Device.objects.filter(pk=device.pk).update(client_version="1.0.0-\033[2J")
        assert "\033" not in run("list_devices")

    def test_json(self, mint: Callable[..., Minted]) -> None:
        device, _, plain = mint()
        auth(plain)
        pairing.revoke(device)
        (found,) = json.loads(run("list_devices", "--json"))
        assert (
            found["id"],
            found["name"],
            found["state"],
            found["platform"],
            found["last_address"],
        ) == (device.pk, "phone", "revoked", "ios", "192.168.1.7")
        assert found["revoked_at"] and found["paired_at"] and found["last_seen_at"]


class TestRevoke:
    def test_unknown(self) -> None:
        assert "No device" in failure("revoke_device", "nobody")
        assert "No device" in failure("revoke_device", "99999999999999999999999")

    def test_ambiguous_lists_the_ids(self, mint: Callable[..., Minted]) -> None:
        twins = [mint("twin")[0] for _ in range(2)]
        message = failure("revoke_device", "twin")
        assert all(str(twin.pk) in message for twin in twins)
        assert not Device.objects.exclude(revoked_at=None).exists()

    def test_an_id_goes_before_a_name(self, mint: Callable[..., Minted]) -> None:
        device, _, _ = mint()
        other, _, _ = mint(str(device.pk))
        run("revoke_device", str(device.pk))
        other.refresh_from_db()
        assert other.revoked_at is None and Device.objects.get(pk=device.pk).revoked_at is not None


@pytest.mark.parametrize(
    "arguments", [["mint_pairing_qr"], ["list_devices"], ["revoke_device", "1"], ["make_admin"]]
)
class TestWithoutADatabase:
    def test_no_tables(self, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection.introspection, "table_names", list)
        assert "Start the bridge once" in failure(*arguments)

    def test_no_connection(self, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> list[str]:
            raise OperationalError("unable to open database file")

        monkeypatch.setattr(connection.introspection, "table_names", fail)
        assert "unable to open database file" in failure(*arguments)


class TestMakeAdmin:
    PASSWORD = "sphinx-of-black-quartz"

    def terminal(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        """A terminal in which somebody types these."""
        left = iter(answers)
        place = "bridge_project.management.commands.make_admin"
        monkeypatch.setattr(
            f"{place}.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
        )
        monkeypatch.setattr("builtins.input", lambda _prompt: next(left))
        monkeypatch.setattr(f"{place}.getpass", SimpleNamespace(getpass=lambda _prompt: next(left)))

    def pipe(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        monkeypatch.setattr(
            "bridge_project.management.commands.make_admin.sys",
            SimpleNamespace(stdin=io.StringIO(text)),
        )

    def the_user(self) -> Any:
        return get_user_model().objects.get()

    def test_asks_in_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.terminal(monkeypatch, "ada", self.PASSWORD, self.PASSWORD)
        assert f"{HERE.base_url}/admin/" in run("make_admin")
        user = self.the_user()
        assert (user.username, user.is_superuser, user.is_staff) == (
            "ada",
            True,
            True,
        ) and user.check_password(self.PASSWORD)

    def test_asks_again_when_the_two_differ_or_it_is_weak(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.terminal(
            monkeypatch, "", "short", self.PASSWORD, "other", self.PASSWORD, self.PASSWORD
        )
        run("make_admin")
        assert self.the_user().username == "admin"

    def test_gives_up_after_three_times(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.terminal(monkeypatch, "ada", "short", "short", "short")
        assert "No user was made" in failure("make_admin")

    def test_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", self.PASSWORD)
        self.pipe(monkeypatch, "")
        assert self.PASSWORD not in run("make_admin", "--username", "ada")
        assert self.the_user().check_password(self.PASSWORD)

    def test_from_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pipe(monkeypatch, f"{self.PASSWORD}\n")
        run("make_admin")
        assert self.the_user().username == "admin" and self.the_user().check_password(self.PASSWORD)

    @pytest.mark.parametrize(
        ("text", "says"),
        [("", "No password"), ("short\n", "too short"), ("password123\n", "too common")],
    )
    def test_no_or_a_weak_password(
        self, text: str, says: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.pipe(monkeypatch, text)
        assert says in failure("make_admin")
        assert not get_user_model().objects.exists()

    @pytest.mark.parametrize(
        ("name", "says"), [("ada", "already exists"), ("a b", "valid username"), ("x" * 151, "150")]
    )
    def test_a_name_that_is_taken_or_none(
        self, name: str, says: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", self.PASSWORD)
        get_user_model().objects.create_user("ada")
        assert says in failure("make_admin", "--username", name)
