"""Parse a Eureka registry's JSON. No I/O.

It reads JSON instead of XML, because it needs the metadata entry "delay-queue:task". As the name of an XML element
this has an undeclared prefix, which XML parsers reject.

The input differs between versions of the registry and of its clients: a single instance is an object or a list of one,
and numbers may be strings. An instance that cannot be called is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv6Address
from typing import Any, cast

import msgspec

from . import TASK_KEY, Instance

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)
_decode = msgspec.json.Decoder().decode


class Unreadable(Exception):
    """This is not a registry's answer."""


def instances_in(raw: bytes, prefer_ip: bool) -> list[Instance]:
    """The instances that are up, from an answer about one application ({"application": ...}) or several
    ({"applications": ...})."""
    try:
        found = _table(_decode(raw))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    if "application" not in found and "applications" not in found:
        raise Unreadable("it names no applications")
    applications = _entries(found.get("application")) or _entries(_table(found.get("applications")).get("application"))
    made = (_instance(_table(one), prefer_ip) for app in applications for one in _entries(_table(app).get("instance")))
    return [instance for instance in made if instance is not None]


def _instance(entry: dict[str, Any], prefer_ip: bool) -> Instance | None:
    if entry.get("status") != "UP":
        return None
    secure, port = _port(entry.get("securePort")), _port(entry.get("port"))
    scheme, number = ("https", secure) if secure is not None else ("http", port)
    names = (entry.get("ipAddr"), entry.get("hostName")) if prefer_ip else (entry.get("hostName"), entry.get("ipAddr"))
    host = next(filter(None, map(_host, names)), None)
    if host is None or number is None:
        return None
    url = f"{scheme}://{host}:{number}"
    metadata = {name: str(value) for name, value in _table(entry.get("metadata")).items() if value is not None}
    return Instance(
        url,
        tasks_of(metadata.get(TASK_KEY)),
        service=str(entry.get("vipAddress") or entry.get("app") or "").lower(),
        id=str(entry.get("instanceId") or entry.get("hostName") or url),
        metadata=metadata,
    )


def tasks_of(text: str | None) -> tuple[str, ...] | None:
    """The task types in a metadata entry, split exactly as the application joined them, because a type may itself
    contain commas and spaces. None when the entry is missing."""
    if not text:
        return None if text is None else ()
    return tuple(dict.fromkeys(text.split(", ")))


def _port(value: Any) -> int | None:
    """The number in {"$": 8080, "@enabled": "true"}; None when it is not in use."""
    table = _table(value)
    if str(table.get("@enabled")).lower() != "true":
        return None
    text = str(table.get("$"))
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return number if 1 <= number <= 65_535 else None


def _host(value: Any) -> str | None:
    """A host as written in a URL; None if it is not a plain host, for example if it has a path or a user in it."""
    if not isinstance(value, str):
        return None
    if _HOST.fullmatch(value):
        return value
    try:
        return f"[{IPv6Address(value)}]" if "%" not in value else None
    except AddressValueError:
        return None


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _entries(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [value] if isinstance(value, dict) else []


def by_service(instances: list[Instance]) -> Iterator[tuple[str, list[Instance]]]:
    """The instances of each service; one instance may list several service names ("a,b")."""
    found: dict[str, list[Instance]] = {}
    for instance in instances:
        for name in filter(None, (part.strip() for part in instance.service.split(","))):
            found.setdefault(name, []).append(instance)
    yield from sorted(found.items())
