"""Derive Django's settings from ``conf``; read no environment here."""

import hashlib
import sys
from typing import Any
from urllib.parse import urlsplit

from django.conf.locale.en import formats
from django.urls import reverse_lazy

from bridge_project import PROTOCOL_VERSION
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import database_settings

SECRET_KEY = conf.secret("django_secret")
DEBUG = False
# Host names are checked by RequestMiddleware against what the certificate and D18 say, which can
# change while the bridge runs.
ALLOWED_HOSTS = ["*"]

INSTALLED_APPS = [
    "unfold",  # before the admin site, whose templates it replaces
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "corsheaders",
    "bridge_project.apps.KernelConfig",
    "devices_app",
    "sessions_app",
    "files_app",
    "hooks_app",
]

MIDDLEWARE = [
    "bridge_project.http.middleware.RequestMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "bridge_project.urls"
# what `runserver` would serve
WSGI_APPLICATION = "bridge_project.http.transport_middleware.refuse_wsgi"
ASGI_APPLICATION = "bridge_project.asgi.application"
APPEND_SLASH = False

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["bridge_project.templatetags.own_commands"],
        },
    }
]

DATABASES = {"default": database_settings(conf)}
if "sqlite3" in DATABASES["default"]["ENGINE"]:
    # REST framework imports Django's PostgreSQL fields where it can, and they psycopg: 9 MB of
    # which SQLite has no use. None makes that import fail, which REST framework expects.
    sys.modules.setdefault("django.contrib.postgres", None)  # type: ignore[arg-type]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES: dict[str, Any] = {
    "local": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        # of the default, 300, an attacker with a few addresses would wash out the counts of others
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    },
    "shared": {"BACKEND": "bridge_project.http.ratelimit.FallbackCache"},
}
RATELIMIT_USE_CACHE = "shared"
CACHES["default"] = CACHES["local"]
CHANNEL_LAYERS: dict[str, Any] = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
if conf.redis_url:
    from redis.connection import parse_url

    CACHES["default"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": conf.redis_url,
        "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 1},
    }
    # What is published reaches all databases of a Redis server: bridges that use different ones
    # shall not hear each other. No keepalive: reconnecting to a Redis that cannot be reached kept
    # requests waiting, and the log is looked at twice a second in any case.
    _prefix = f"bridge.{parse_url(conf.redis_url).get('db', 0)}"  # type: ignore[no-untyped-call]
    CHANNEL_LAYERS["default"] = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [conf.redis_url], "prefix": _prefix},
    }

_VALIDATION = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_VALIDATION}.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": f"{_VALIDATION}.CommonPasswordValidator"},
    {"NAME": f"{_VALIDATION}.NumericPasswordValidator"},
]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["devices_app.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],  # only named in OpenAPI
    "UNICODE_JSON": False,
    "DEFAULT_SCHEMA_CLASS": "bridge_project.docs.openapi.EndpointSchema",
    "EXCEPTION_HANDLER": "bridge_project.http.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Bridge",
    "DESCRIPTION": "The HTTP interface of the bridge between coding agents and paired devices.",
    "VERSION": PROTOCOL_VERSION,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "PATH_CONVERTER_OVERRIDES": {"session_id": {"type": "string"}},  # its pattern is Python's
    "POSTPROCESSING_HOOKS": ["bridge_project.docs.openapi.add_errors"],
}

CORS_ALLOW_ALL_ORIGINS = conf.bridge_cors_allow_all
# An app's own scheme (capacitor://localhost) may open a WebSocket but sends no CORS request.
CORS_ALLOWED_ORIGINS = [
    one for one in conf.bridge_allowed_origins if urlsplit(one).scheme in ("http", "https")
]
CORS_ALLOW_METHODS = ["GET", "POST", "OPTIONS"]
CORS_ALLOW_HEADERS = ["Authorization", "Content-Type", "X-Request-ID"]
CORS_EXPOSE_HEADERS = ["X-Request-ID", "Retry-After"]
CORS_URLS_REGEX = r"^/(api/v1|hooks)/"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
# Django takes the language's own format, and not a setting; it does not say which time it is.
formats.DATETIME_FORMAT = r"j M Y, H:i \U\T\C"
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True

# Cookies know no ports: two bridges on one host name must not take each other's for their own.
_WHOSE = hashlib.sha256(f"cookies of {SECRET_KEY}".encode()).hexdigest()[:8]
SESSION_COOKIE_SECURE = True
SESSION_COOKIE_NAME = f"__Host-bridge-session-{_WHOSE}"
CSRF_COOKIE_SECURE = True
CSRF_COOKIE_NAME = f"__Host-bridge-csrf-{_WHOSE}"
CSRF_FAILURE_VIEW = "bridge_project.http.errors.csrf_failure"
# with "no-referrer" browsers send `Origin: null` with a form, and nobody could log in to the admin
# site
SECURE_REFERRER_POLICY = "same-origin"
# never with an own certificate (D19): a browser would refuse the bridge for ever after
SECURE_HSTS_SECONDS = 0
CSRF_TRUSTED_ORIGINS = (
    [conf.bridge_public_url] if conf.bridge_public_url.startswith("https://") else []
)

# The edge has capped the body already; Django's own cap would answer in HTML.
DATA_UPLOAD_MAX_MEMORY_SIZE = None

LOGGING_CONFIG = "bridge_project.kernel.logging.configure"
LOGGING: dict[str, Any] = {"version": 1}  # Django does not call the line above when this is empty


# -- the admin site --------------------------------------------------------------------------------


def _page(title: str, icon: str, name: str, permission: str = "", **more: str) -> dict[str, Any]:
    """Describe a page of the menu; without the permission it is not there."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{name}"),
        "permission": lambda request: not permission or request.user.has_perm(permission),
        **more,
    }


def _table(title: str, icon: str, app: str, model: str, **more: str) -> dict[str, Any]:
    return _page(title, icon, f"{app}_{model}_changelist", f"{app}.view_{model}", **more)


_PENDING = {"badge": "sessions_app.admin.pending_approvals", "badge_variant": "warning"}
_MAY_PAIR = "devices_app.change_device"
_IS_DEVICES, _IS_SESSIONS = "devices_app.admin.is_devices", "sessions_app.admin.is_sessions"
_MENU = [
    {
        "items": [
            _page("Now", "dashboard", "index"),
            _table("Approvals", "task_alt", "sessions_app", "toolcall", **_PENDING),
            _table("Devices", "smartphone", "devices_app", "device", active=_IS_DEVICES),
            _page("Pair a device", "qr_code_2", "devices_app_device_pair", _MAY_PAIR),
            _table("Sessions", "forum", "sessions_app", "session", active=_IS_SESSIONS),
            _page("Agents", "smart_toy", "sessions_app_agents", "sessions_app.view_session"),
            _table("Trusted", "verified_user", "files_app", "trustedrepository"),
            _table("Audit trail", "history", "devices_app", "auditentry"),
        ]
    },
    {
        "title": "Details",
        "items": [
            _table("Hook events", "bolt", "hooks_app", "hookevent"),
            _table("Pending queue", "inbox", "sessions_app", "logrow"),
            _table("Notify addresses", "campaign", "devices_app", "notifyaddress"),
            _table("Users", "person", "auth", "user"),
        ],
    },
]

# A style in the page is against its policy: colours are in admin.css.
UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Bridge",
    "SITE_HEADER": "Bridge",
    "SITE_URL": "/app/",  # the web client (D53)
    "SITE_ICON": "devices_app.web_client.icon",
    "SITE_FAVICONS": [{"rel": "icon", "href": "devices_app.web_client.icon"}],
    "SHOW_HISTORY": False,
    "COLORS": lambda request: {},
    "STYLES": [f"{STATIC_URL}bridge/admin.css"],
    "SCRIPTS": [f"{STATIC_URL}bridge/admin.js"],
    "DASHBOARD_CALLBACK": "bridge_project.operations.dashboard.fill",
    "SIDEBAR": {"navigation": _MENU},
}
