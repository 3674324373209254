"""The setting DUELINE: a dictionary with URL, NAMESPACE, TOKEN and WORKER, all optional."""

from __future__ import annotations

import difflib
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from ...client.client import Client

KEYS = ("URL", "NAMESPACE", "TOKEN", "WORKER")


class DjangoSettings(msgspec.Struct, frozen=True):
    """The project's settings. `worker`: the dotted path of the worker that `dueline_work` runs."""

    url: str | None = None
    namespace: str | None = None
    token: str | None = None
    worker: str | None = None


def current() -> DjangoSettings:
    """The settings of the project, checked. Raises ImproperlyConfigured that names the key."""
    given: Any = getattr(settings, "DUELINE", None) or {}
    if not isinstance(given, dict):
        raise ImproperlyConfigured("DUELINE must be a dictionary, such as {'URL': 'http://127.0.0.1:9277'}")
    for key, value in given.items():  # pyright: ignore[reportUnknownVariableType]
        if key not in KEYS:
            near = difflib.get_close_matches(str(key).upper(), KEYS, n=1)  # pyright: ignore[reportUnknownArgumentType]
            raise ImproperlyConfigured(f"DUELINE has no {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if value is not None and not isinstance(value, str):
            raise ImproperlyConfigured(f"DUELINE[{key!r}] must be a string")
    values: dict[str, str | None] = {str(key).lower(): value for key, value in given.items()}  # pyright: ignore[reportUnknownArgumentType]
    return DjangoSettings(**values)


class _Clients:
    """The project's only client. It is created again after a test has changed the settings."""

    def __init__(self) -> None:
        self.cached: tuple[DjangoSettings, Client] | None = None

    def get(self) -> Client:
        now = current()
        if self.cached is None or self.cached[0] != now:
            self.forget()
            self.cached = (now, Client(now.url, now.namespace, now.token))
        return self.cached[1]

    def forget(self) -> None:
        if self.cached is not None:
            self.cached[1].close()
            self.cached = None


_clients = _Clients()


def client() -> Client:
    """The HTTP client of the project, shared by all threads. DUELINE["URL"] must be a server's URL."""
    return _clients.get()


def _changed(*, setting: str, **_: Any) -> None:
    if setting == "DUELINE":
        _clients.forget()


setting_changed.connect(_changed)
