# ruff: noqa: E402
# mypy: disable-error-code="type-arg, attr-defined, misc"
"""A yardstick: the same service as the tutorials of Django, DRF and Channels lead one to write it.

The only liberty is SQLite's WAL, without which posts fail at once under load. `python -m
tests.performance.tutorial PORT CERT KEY DATABASE TOKEN`.
"""

import sys
from typing import Any

import django
from django.conf import settings

PORT, CERTIFICATE, KEY, DATABASE, TOKEN = sys.argv[1:6]
WAL = {"init_command": "PRAGMA journal_mode=wal", "timeout": 20}
settings.configure(
    SECRET_KEY=TOKEN,
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    LOGGING_CONFIG=None,
    INSTALLED_APPS=[
        *(f"django.contrib.{name}" for name in ("auth", "contenttypes", "sessions")),
        *("rest_framework", "rest_framework.authtoken", "channels"),
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE, "OPTIONS": WAL}
    },
    CHANNEL_LAYERS={"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.TokenAuthentication"],
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    },
)
django.setup()

from asgiref.sync import async_to_sync
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.layers import get_channel_layer
from channels.routing import ProtocolTypeRouter, URLRouter
from daphne.server import Server
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.db import connection, models
from django.urls import path
from rest_framework import generics, serializers
from rest_framework.authtoken.models import Token


class Event(models.Model):
    event = models.CharField(max_length=32)
    timestamp = models.DateTimeField()
    session_id = models.CharField(max_length=256, db_index=True)
    payload = models.JSONField()

    class Meta:
        app_label = "tutorial"


class EventSerializer(serializers.ModelSerializer):
    class Meta:
        model = Event
        fields = ("id", "event", "timestamp", "session_id", "payload")


class CreateEvent(generics.CreateAPIView):
    queryset = Event.objects.all()
    serializer_class = EventSerializer

    def perform_create(self, serializer: Any) -> None:
        serializer.save()
        group = "session_" + serializer.data["session_id"]
        async_to_sync(get_channel_layer().group_send)(
            group, {"type": "agent.event", "event": serializer.data}
        )


class EventConsumer(AsyncJsonWebsocketConsumer):
    async def connect(self) -> None:
        self.group = "session_" + self.scope["url_route"]["kwargs"]["session_id"]
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(self.group, self.channel_name)

    async def agent_event(self, message: dict[str, Any]) -> None:
        await self.send_json({"type": "agent_event", "payload": message["event"]})


urlpatterns = [path("events/", CreateEvent.as_view())]
sockets = URLRouter([path("ws/<str:session_id>", EventConsumer.as_asgi())])
application = ProtocolTypeRouter({"http": get_asgi_application(), "websocket": sockets})
call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Event)
Token.objects.create(key=TOKEN, user=User.objects.create(username="agent"))
where = f"ssl:{PORT}:privateKey={KEY}:certKey={CERTIFICATE}:interface=127.0.0.1"
Server(application, endpoints=[where]).run()
