"""A client for each kind of token, with rate limits off."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from bridge_project.http import ratelimit
from bridge_project.kernel.config import conf
from devices_app import pairing

SIX = {"error", "message", "code", "request_id", "timestamp", "documentation_url"}


class Api:
    """A client that sends one token (or none) to the bridge's own host name and reads JSON."""

    def __init__(self, token: str | None) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"host": "localhost:8443"} | (
            {"authorization": f"Bearer {token}"} if token else {}
        )

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        **headers: str,
    ) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given: dict[str, Any] = {"content_type": content_type, "headers": self.headers | named}
        return self.client.generic(method, path, body or "", REMOTE_ADDR="127.0.0.1", **given)

    def get(self, path: str, **options: Any) -> Any:
        return self("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self("POST", path, body, **options)


@pytest.fixture
def stranger() -> Api:
    return Api(None)


@pytest.fixture
def hook() -> Api:
    return Api(conf.secret("hook_token"))


@pytest.fixture
def admin() -> Api:
    return Api(conf.secret("admin_token"))


@pytest.fixture
def pair(db: None) -> Callable[..., Api]:
    """A new device's client."""

    def make(name: str = "phone") -> Api:
        return Api(pairing.mint(name, ttl=timedelta(minutes=10), lifetime=None, device=None)[2])

    return make


@pytest.fixture
def device(pair: Callable[..., Api]) -> Api:
    return pair()


@pytest.fixture(autouse=True)
def _unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "conf", conf.model_copy(update={"bridge_rate_limits": "off"}))


def check_error(response: Any, code: str, status: int) -> dict[str, Any]:
    """An error with all six fields (D9); returns its body."""
    body: dict[str, Any] = response.json()
    assert (response.status_code, body.get("code")) == (status, code), body
    assert body.keys() >= SIX
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Request-ID"] == body["request_id"]
    assert body["documentation_url"] == f"https://localhost:8443/docs/errors/{code}"
    return body
