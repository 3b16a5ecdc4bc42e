"""The documents of the API, the pages under /docs, the generated files: nothing is out of date."""

import base64
import hashlib
import json
import re
from typing import Any

import jsonschema
import pytest
from django.test import Client
from django.urls import URLPattern, get_resolver

from bridge_project import urls
from bridge_project.composition import system_views
from bridge_project.docs import asyncapi, reference
from bridge_project.kernel.config import SECRET_FIELDS, Conf
from bridge_project.kernel.errors import ERRORS
from bridge_project.kernel.place import PROJECT_DIR
from bridge_project.management.commands.generate_docs import PAGES


def test_every_address_of_the_api_is_in_the_schema() -> None:
    patterns = [str(one.pattern) for one in urls.urlpatterns if isinstance(one, URLPattern)]
    served = {
        "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", one)
        for one in patterns
        if one.startswith(("api/v1/", "hooks/", "metrics"))
    }
    assert served and served == json.loads(system_views.document())["paths"].keys()


@pytest.fixture
def messages(client: Client) -> dict[str, Any]:
    response = client.get("/api/v1/asyncapi")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    found: dict[str, Any] = response.json()
    return found


def test_each_example_is_what_its_schema_says(messages: dict[str, Any]) -> None:
    """Draft 7, on which AsyncAPI builds; a reference that leads nowhere fails too."""
    components = messages["components"]
    assert components["messages"].keys() == {message.name for message in asyncapi.messages()}
    for message in components["messages"].values():
        schema = {**message["payload"], "components": components}
        jsonschema.Draft7Validator.check_schema(schema)
        [example] = message["examples"]
        jsonschema.Draft7Validator(schema).validate(example["payload"])


@pytest.mark.parametrize("address", ["/", "/docs", "/docs/errors", "/docs/errors/SESSION_CLOSED"])
def test_a_page_has_no_scripts_nothing_from_elsewhere_and_no_dead_links(
    client: Client, address: str
) -> None:
    response = client.get(address)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    html = response.content.decode()
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "<script" not in html and " style=" not in html
    assert re.findall(r'(?:src|href)="(?!/|data:,|#)[^"]*"', html) == []
    [style] = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    for link in re.findall(r'href="(/[^"]*)"', html):
        get_resolver().resolve(link)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_committed_file_is_what_is_generated(name: str) -> None:
    committed = (PROJECT_DIR / name).read_text(encoding="utf-8")
    assert committed == PAGES[name](), "run: python manage.py generate_docs"


def test_every_setting_is_described_and_no_secret_is_shown() -> None:
    assert all((field.description or "").endswith(".") for field in Conf.model_fields.values())
    assert {name: Conf.model_fields[name].default for name in SECRET_FIELDS} == dict.fromkeys(
        (
            *("bridge_hook_token", "bridge_admin_token", "bridge_notify_urls"),
            *("database_url", "redis_url"),
        ),
        "",
    )


def test_every_code_is_described() -> None:
    for code, row in ERRORS.items():
        assert code == row.code
        assert row.message.endswith(".") and row.remedy.endswith("."), code
        assert reference.sent_as(row), f"{code} is in the table but is sent nowhere"
