"""How much of the processor a page's tasks take, by Chromium's own trace."""

import json
import urllib.request
from collections import defaultdict
from itertools import count
from typing import Any

from selenium import webdriver
from websockets.sync.client import connect

TASK, MAIN = "ThreadControllerImpl::RunTask", "CrRendererMain"
CHUNK = 1 << 22


class Trace:
    """Runs from its making to `end`, by a connection of its own to the browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        address = driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
        with urllib.request.urlopen(f"http://{address}/json/version") as answer:
            url = json.load(answer)["webSocketDebuggerUrl"]
        self._socket = connect(url, max_size=None)
        self._numbers = count(1)
        config = {"recordMode": "recordAsMuchAsPossible", "includedCategories": ["toplevel"]}
        self._ask("Tracing.start", transferMode="ReturnAsStream", traceConfig=config)

    def end(self) -> list[float]:
        """What each task of the busiest page's main thread took of the processor, in ms."""
        self._ask("Tracing.end")
        stream = self._until("method", "Tracing.tracingComplete")["params"]["stream"]
        text, more = "", True
        while more:
            part = self._ask("IO.read", handle=stream, size=CHUNK)
            text, more = text + part["data"], not part["eof"]
        self._socket.close()
        return _tasks(json.loads(text)["traceEvents"])

    def _ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        return self._until("id", number)["result"]

    def _until(self, field: str, value: object) -> Any:
        while (message := json.loads(self._socket.recv())).get(field) != value:
            pass
        return message


def _tasks(events: list[dict[str, Any]]) -> list[float]:
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == MAIN
    }
    pages: dict[int, list[float]] = defaultdict(list)
    for event in events:
        if event["name"] == TASK and (event["pid"], event["tid"]) in main and "tdur" in event:
            pages[event["pid"]].append(event["tdur"] / 1000)
    return max(pages.values(), key=sum)
