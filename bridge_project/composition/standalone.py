"""Run the background work of `serve` under another ASGI server (D61).

daphne does not tell an application when it starts and ends, so this asks its reactor. Other servers
send `lifespan`. Without either, the first request starts the work.
"""

import asyncio
import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

import structlog
from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from bridge_project.composition import background, migrations, startup
from bridge_project.http.asgi_types import Application, Receive, Scope, Send
from bridge_project.kernel import daphne_command, limits, threads
from bridge_project.kernel.config import ConfError, conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.own_commands import make_command
from bridge_project.network import certificates as tls_certificates
from bridge_project.network import server_address

log = structlog.get_logger("bridge.startup")


class Standalone:
    """Hold the data directory while the application serves, as `serve` does.

    Requests wait until everything runs. While it cannot be started, each request is answered
    STORAGE_UNAVAILABLE and tries again; the log says why, once.
    """

    def __init__(self, application: Application) -> None:
        self.application = application
        self._resources = ExitStack()
        self._prepared = self._started = False
        self._starting = asyncio.Lock()
        self._fault = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif self._started or await self._start():
            await self.application(scope, receive, send)
        else:
            raise BridgeError("STORAGE_UNAVAILABLE")

    def prepare(self) -> None:
        """Take the data directory and check all that `serve` does. Raises as it does."""
        with ExitStack() as resources:
            startup.check_made(conf)
            resources.enter_context(startup.only_server(conf))
            certificates = tls_certificates.load_or_renew(conf)
            startup.check_system(conf)
            if waiting := migrations.pending():
                raise CommandError(
                    f"The database waits for migrations ({len(waiting)})."
                    f" Run `{make_command(conf, 'run')}` once: it copies the database first."
                )
            server_address.record(conf, server_address.current(conf, certificates))
            self._resources = resources.pop_all()
        self._prepared = True

    async def _start(self) -> bool:
        async with self._starting:
            try:
                if not self._prepared:
                    await asyncio.to_thread(self.prepare)
                if not self._started:
                    await background.start_all()
                    self._started = True
            except (CommandError, ConfError, DatabaseError, OSError) as error:
                if str(error) != self._fault:
                    self._fault = str(error)
                    log.critical("the bridge cannot start", reason=self._fault)
        return self._started

    async def _stop(self) -> None:
        async with self._starting:
            if self._started:
                await background.stop_all()
            self._resources.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Follow the `lifespan` of ASGI: a start that fails ends the server."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                if await self._start():
                    await send({"type": "lifespan.startup.complete"})
                else:
                    await send({"type": "lifespan.startup.failed", "message": self._fault})
            else:
                await self._stop()
                return await send({"type": "lifespan.shutdown.complete"})

    def start_with_daphne(self) -> None:
        """Start and stop with daphne; if it cannot start, end the process with one line."""
        options = daphne_command.arguments()
        if options is not None and options.proxy_headers:
            sys.exit(
                "--proxy-headers: with it anybody can name any client. Leave it out:"
                " the bridge reads the headers of the proxies in BRIDGE_TRUSTED_PROXIES by itself."
            )
        try:
            self.prepare()
        except (CommandError, ConfError) as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(getattr(error, "returncode", 1))
        from twisted.internet import defer, reactor  # daphne has installed it

        loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        first = loop.create_task(self._start(), name="start")

        def stop() -> Any:
            first.cancel()
            return defer.Deferred.fromFuture(loop.create_task(self._stop(), name="stop"))

        reactor.addSystemEventTrigger("before", "shutdown", stop)
        exit_later = partial(threads.exit_after, limits.EXIT_SECONDS, 0)
        reactor.addSystemEventTrigger("after", "shutdown", exit_later)
