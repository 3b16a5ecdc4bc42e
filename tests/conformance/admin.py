"""A browser without a screen for the admin site."""

import html
import re
import urllib.parse

from tests.conformance.bridge import Bridge
from tests.conformance.https import Response

PASSWORD = "sphinx-of-black-quartz"


class Admin:
    """A user made by `make_admin`, logged in over HTTPS."""

    def __init__(self, bridge: Bridge, name: str) -> None:
        self.bridge, self.cookies, self.form_token = bridge, dict[str, str](), ""
        bridge.settings["DJANGO_SUPERUSER_PASSWORD"] = PASSWORD
        try:
            bridge.manage("make_admin", "--username", name)
        finally:
            del bridge.settings["DJANGO_SUPERUSER_PASSWORD"]
        self.get("/admin/login/")
        form = {"username": name, "password": PASSWORD, "next": "/admin/"}
        answer = self.post("/admin/login/", form)
        assert answer.status == 302, answer
        assert "/admin/login/" not in answer.headers["location"]

    def request(self, method: str, path: str, body: bytes | None = None) -> Response:
        """One request with the cookies; those that come back are kept."""
        origin = f"https://127.0.0.1:{self.bridge.port}"
        headers = {
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            "Referer": f"{origin}/admin/",
            "Origin": origin,
        }
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        answer = self.bridge.https().request(method, path, body=body, headers=headers)
        self.cookies |= answer.cookies
        if found := re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', answer.body):
            self.form_token = found[1].decode()
        return answer

    def get(self, path: str) -> Response:
        return self.request("GET", path)

    def page(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status == 200, f"{path}: {answer}"
        return answer.body.decode()

    def post(self, path: str, fields: dict[str, str]) -> Response:
        """As a form of the page that was read last."""
        form = urllib.parse.urlencode(fields | {"csrfmiddlewaretoken": self.form_token})
        return self.request("POST", path, form.encode())


def text_of(page: str) -> str:
    """What a reader sees: tags away, entities resolved."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page)))


def rows_of(page: str) -> list[str]:
    """The rows of a list, each as the text that a reader sees."""
    table = re.search(r'<table id="result_list".*?</thead>(.*?)</table>', page, re.DOTALL)
    rows = re.findall(r"<tr.*?</tr>", table[1], re.DOTALL) if table else []
    return [text_of(row) for row in rows]


def links_of(page: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(r'href="([^"]+)"', page)]
