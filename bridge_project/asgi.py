"""Route HTTP to Django and WebSockets to the consumer, the whole ASGI application.

`application` is a whole bridge for any ASGI server (D61). `serve` uses `routes` instead, because it
starts the background work itself.
"""

import os
import sys

from django.core.management.base import CommandError

from bridge_project.kernel import daphne_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")

if daphne_command.is_running():
    daphne_command.use_its_address()
    try:
        from bridge_project.composition import startup
        from bridge_project.kernel.config import conf

        startup.check_made(conf)  # before Django's settings make a part of it
    except (ValueError, CommandError) as error:  # a wrong setting is a ValueError
        sys.exit(str(error))

import django

django.setup()

from channels.routing import ProtocolTypeRouter

from bridge_project.composition.handlers import HANDLERS
from bridge_project.composition.standalone import Standalone
from bridge_project.composition.upgrade import UpgradeCheck
from bridge_project.http.request_threads import HttpHandler
from bridge_project.http.transport_middleware import TransportMiddleware
from files_app.request_limiter import FileRequestLimiter
from hooks_app.intake.fast_path import FastPath
from sessions_app.socket.consumer import BridgeConsumer

_socket = UpgradeCheck(BridgeConsumer.as_asgi(handlers=HANDLERS))
_http = FastPath(FileRequestLimiter(HttpHandler()))
routes = ProtocolTypeRouter({"http": _http, "websocket": _socket})
_standalone = Standalone(routes)
application = TransportMiddleware(_standalone)

if daphne_command.is_running():
    _standalone.start_with_daphne()
