"""Run Django's request cycle in a few threads that keep database connections."""

from collections.abc import Iterable
from typing import Any, Final, cast
from urllib.parse import quote

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http import HttpResponse

from bridge_project.http.asgi_types import Scope
from bridge_project.kernel.threads import Threads, requests

_ASCII: Final = bytes(range(128))


class HttpHandler(ASGIHandler):
    """Run a request's middlewares and view in one thread; an ASGI application.

    Django's own handler goes to a thread and back about seventeen times for each request. A client
    that goes away does not stop its request: what was begun is finished, which is what an event
    that is being stored needs. An application in front may name other threads in the scope.
    """

    def __init__(self) -> None:
        super(ASGIHandler, self).__init__()
        self.load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with body:
            threads: Threads = scope.get("bridge.threads", requests)
            response = await threads.run(self._answer, scope, body)
        try:
            await self.send_response(response, send)
        finally:
            # or it would be in memory until the garbage collector finds the response
            response.content = b""

    def _answer(self, scope: Scope, body: Any) -> HttpResponse:
        signals.request_started.send(sender=self.__class__, scope=scope)
        # Django refuses a query that is no UTF-8 before any middleware runs, without D9's fields.
        query = quote(scope["query_string"], safe=_ASCII)
        request = ASGIRequest({**scope, "query_string": query.encode()}, body)
        response = self.get_response(request)
        request._body = b""  # REST framework's requests are in a circle, too
        response._handler_class = self.__class__  # type: ignore[attr-defined]
        if response.streaming:  # a small static file
            parts = b"".join(cast(Iterable[bytes], response))
            whole = HttpResponse(parts, status=response.status_code, headers=dict(response.items()))
        else:
            whole = cast(HttpResponse, response)
        response.close()
        return whole
