"""Load the settings from five sources. In order of precedence: flags, `DUELINE_<SECTION>__<KEY>` variables, a
configuration file of another delay queue (DialectSpec.config_file), a TOML file, the defaults.

Nothing is guessed: an unknown key, a wrong type or a value out of bounds is a ConfigError that names the key and its
source. For a typing error it also suggests the key that was probably meant.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from ..dialects.spec import FileValues
from ..engine.errors import InvalidField
from ..store.valkey.tls import StoreTls
from ..store_address import SENTINEL_LOGIN, Kind, parse_store_url
from .durability import durability_refusal
from .errors import ConfigError
from .reach import check_callers, check_reach, parse_address
from .settings import DEFAULT_LISTEN, SECRET, Settings, Store
from .table import Key, keys

_BOUND = re.compile(r"Expected `(?:int|float)` ([<>]=) (\S+)")
_PATTERN = re.compile(r"Expected `str` matching regex '(.*)'")


def load(
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
    foreign: Sequence[FileValues] = (),
) -> Settings:
    """Read, merge and check. `flags` maps paths ("server.listen") to values; None means "not given". `foreign`: the
    files of other delay queues."""
    table = keys()
    values: dict[str, tuple[Any, str]] = {}
    if file is not None:
        values.update(_from_file(file, table))
    theirs = {path: value for one in foreign for path, value in one.values.items()}
    for path, (value, origin) in theirs.items():
        values[path] = (_convert(table[path], value, origin, strict=True), origin)
    values.update(_from_env(env or {}, table))
    for path, value in (flags or {}).items():
        if value is not None:
            values[path] = (
                _convert(table[path], value, table[path].flag or path, strict=False),
                table[path].flag or path,
            )
    for path in theirs:
        if values[path] == theirs[path]:
            _share_port(values, path)
    nested: dict[str, Any] = {}
    for path, (value, _) in values.items():
        *sections, name = path.split(".")
        target = nested
        for section in sections:
            target = target.setdefault(section, {})
        target[name] = value
    settings = msgspec.convert(nested, Settings)
    origins = {origin for _, origin in theirs.values()}
    check(settings, {path: origin for path, (_, origin) in values.items() if origin in origins})
    return settings


def store_of(url: str, env: Mapping[str, str]) -> Store:
    """The settings of the store at a URL, for a program without a configuration: its TLS, the login of its sentinels
    and its durability are in variables. Raises ValueError if they cannot be used."""
    ours = {name: value for name, value in env.items() if name.startswith("DUELINE_STORE__TLS__")}
    found = _from_env(ours, keys()) if ours else {}
    tls = StoreTls(**{path.rsplit(".", 1)[-1]: value for path, (value, _) in found.items()})
    fields: dict[str, Any] = {"url": url}
    names = (*SENTINEL_LOGIN, "durability", "degraded")
    if parse_store_url(url).kind is not Kind.SENTINEL:
        names = names[len(SENTINEL_LOGIN) :]
    for name in names:
        if value := env.get(f"DUELINE_STORE__{name.upper()}"):
            fields[name] = value
    try:
        store = msgspec.structs.replace(msgspec.convert(fields, Store), tls=tls)
    except msgspec.ValidationError as wrong:
        raise ValueError(f"a DUELINE_STORE__ variable cannot be used: {wrong}") from None
    why = durability_refusal(store) or tls.url_refusal(url)
    if why is not None:
        raise ValueError(why)
    return store


def wants_json(env: Mapping[str, str], file: Path | None) -> bool:
    """Whether the log is configured as JSON, even if the rest of the configuration is unusable. Errors about the
    configuration are then JSON, too."""
    log_format: Any = env.get("DUELINE_LOG__FORMAT")
    if log_format is None and file is not None:
        try:
            log_format = tomllib.loads(file.read_text(encoding="utf-8"))["log"]["format"]
        except (OSError, ValueError, RecursionError, LookupError, TypeError):
            pass
    return log_format == "json"


def _share_port(values: dict[str, tuple[Any, str]], path: str) -> None:
    """If a file of another delay queue gives a dialect our default port and server.listen is not set, serve both on the
    file's address."""
    if not path.endswith(".listen") or "server.listen" in values:
        return
    listen, origin = values[path]
    if parse_address(listen, origin).port == parse_address(DEFAULT_LISTEN, "server.listen").port:
        values["server.listen"] = values[path]


def check(settings: Settings, foreign_names: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check the rules that types cannot express. Raises ConfigError. `foreign_names`: the names of keys in the file of
    another delay queue that set them."""
    for name, section in settings.dialects.by_name().items():
        try:
            section.check()
        except InvalidField as wrong:
            raise ConfigError(f"dialects.{name}.{wrong.field}: {wrong.message}") from None
    check_callers(settings)
    check_reach(settings, foreign_names)
    for name in settings.server.hosts:
        if not HOST_NAME.fullmatch(name):
            raise ConfigError(
                f"server.hosts: must be a name without a port, such as queue.corp or *.corp, not {name!r}"
            )
    for origin in settings.server.origins:
        if not ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"server.origins: must be an origin without a path, like https://queue.corp, not {origin!r}"
            )
    tls = settings.server.tls
    if (tls.cert is None) != (tls.key is None):
        missing, given = ("key", "cert") if tls.key is None else ("cert", "key")
        raise ConfigError(f"server.tls.{missing}: is missing; server.tls.{given} alone is not enough for TLS")
    url = settings.store.url
    if url is not None:
        try:
            kind = parse_store_url(url).kind
        except ValueError as wrong:
            raise ConfigError(f"store.url: {wrong}") from None
        if kind is not Kind.SENTINEL and (settings.store.sentinel_username or settings.store.sentinel_password):
            raise ConfigError("store.sentinel_password: only a store.url of redis+sentinel:// has sentinels")
    why = durability_refusal(settings.store) or settings.store.tls.url_refusal(url)
    if why is not None:
        raise ConfigError(why)
    if settings.limits.max_body_bytes > settings.limits.max_request_bytes:
        raise ConfigError("limits.max_body_bytes: must not be more than limits.max_request_bytes")


HOST_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@?#]+", re.IGNORECASE)


def _from_file(file: Path, table: Mapping[str, Key]) -> dict[str, tuple[Any, str]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from None
    found: dict[str, tuple[Any, str]] = {}
    for path, value in _leaves(content, "", table):
        if path not in table:
            raise ConfigError(f"{file}: {_unknown(path, table)}")
        found[path] = (_convert(table[path], value, str(file), strict=True), str(file))
    return found


def _leaves(content: Mapping[str, Any], prefix: str, table: Mapping[str, Key]) -> Iterable[tuple[str, Any]]:
    for name, value in content.items():
        path = prefix + name
        if path not in table and isinstance(value, dict) and any(key.startswith(path + ".") for key in table):
            yield from _leaves(value, path + ".", table)  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield path, value


def _from_env(env: Mapping[str, str], table: Mapping[str, Key]) -> dict[str, tuple[Any, str]]:
    """The settings among the variables. Those without a double underscore (DUELINE_URL, DUELINE_TOKEN ...) are for
    clients."""
    by_variable = {key.variable: key for key in table.values()}
    found: dict[str, tuple[Any, str]] = {}
    for name in sorted(env):
        if not name.startswith("DUELINE_") or "__" not in name:
            continue
        key = by_variable.get(name)
        if key is None:
            near = difflib.get_close_matches(name, by_variable, 1, 0.6)
            raise ConfigError(f"unknown variable {name}" + (f"; did you mean {near[0]}?" if near else ""))
        value: Any = env[name]
        if key.is_list:
            value = [part.strip() for part in env[name].split(",") if part.strip()]
        elif env[name] == "" and key.default is None:
            value = None
        found[key.path] = (_convert(key, value, name, strict=False), name)
    return found


def _convert(key: Key, value: Any, origin: str, *, strict: bool) -> Any:
    """The value in the key's type. `strict` False: convert from text, so "4" is a number and "true" a boolean."""
    if not strict and isinstance(value, str) and key.kind == "true or false":
        value = {"yes": True, "on": True, "no": False, "off": False}.get(value.lower(), value.lower())
    try:
        return msgspec.convert(value, key.type, strict=strict)
    except msgspec.ValidationError as error:
        shown = "" if key.path in SECRET else f", not {value!r}"
        where = "" if origin == key.path else f" (from {origin})"
        raise ConfigError(f"{key.path}: must be {_wanted(key, str(error))}{shown}{where}") from None


def _wanted(key: Key, error: str) -> str:
    """The value that a key takes: the bound or the pattern that msgspec's error names, else the type."""
    if bound := _BOUND.fullmatch(error):
        return f"at {'least' if bound[1] == '>=' else 'most'} {bound[2]}"
    if pattern := _PATTERN.fullmatch(error):
        return f"{key.kind} that matches {pattern[1]}"
    return f"{key.kind} ({error})" if key.kind == "a table" else key.kind


def _unknown(path: str, table: Mapping[str, Key]) -> str:
    name = path.rsplit(".", 1)[-1]
    sections = {key.rsplit(".", 1)[0] for key in table}
    near = difflib.get_close_matches(path, table if "." in path else sections, 1, 0.7)
    if not near:  # perhaps the right key in the wrong section, or a misspelled section
        same = [key for key in table if key.rsplit(".", 1)[-1] == name]
        near = same or difflib.get_close_matches(path, sections, 1, 0.7)
    return f"unknown key {path}" + (f"; did you mean {near[0]}?" if near else "")
