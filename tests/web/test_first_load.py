"""What a paired phone fetches until all is there, later screens too (D53)."""

import pytest

from tests.conformance.bridge import Bridge
from tests.web.conftest import MakePage

pytestmark = pytest.mark.web

BYTES, REQUESTS = 90_000, 30  # with headers
KEPT = "navigator.serviceWorker.getRegistration().then((one) => Boolean(one?.active))"


def test_the_first_load_of_one_that_is_signed_in(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge).pair()
    page.wait(KEPT)
    page.driver.get(f"{page.base}/docs")
    page.cdp("Network.clearBrowserCache")
    kinds = "cache_storage,service_workers"
    page.cdp("Storage.clearDataForOrigin", origin=page.base, storageTypes=kinds)
    page.network()
    page.open()
    page.wait(KEPT)  # it comes last
    page.wait_whole()
    events = page.network("requestWillBeSent", "loadingFinished")
    asked = {one["requestId"]: one["request"]["url"] for one in events if "request" in one}
    assert all(url.startswith((page.base, "data:")) for url in asked.values())
    sizes = {
        asked[one["requestId"]].removeprefix(page.base): one["encodedDataLength"]
        for one in events
        if "encodedDataLength" in one and one["requestId"] in asked
    }
    assert any(name.endswith("/later.js") for name in sizes)
    assert len(sizes) <= REQUESTS and sum(sizes.values()) <= BYTES, sizes
