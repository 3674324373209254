"""The keys of the configuration, derived from the structs of the settings: one row per key. No I/O."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from .settings import LIMITS, Settings

FLAGS: dict[str, str] = {
    "server.listen": "--listen",
    "server.workers": "--workers",
    "server.insecure": "--insecure",
    "store.url": "--store",
    "store.data": "--data",
}


class Key(msgspec.Struct, frozen=True):
    """One key. Values are converted to `type`; `meaning` is one sentence."""

    path: str
    type: Any
    default: Any
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable of the key."""
        return "DUELINE_" + self.path.upper().replace(".", "__")

    @property
    def flag(self) -> str | None:
        """The flag of `dueline serve` for the key, if there is one."""
        return FLAGS.get(self.path)

    @property
    def is_list(self) -> bool:
        return get_origin(plain(self.type)) in (tuple, list)

    @property
    def kind(self) -> str:
        """The type of the key, as text for messages and docs."""
        return kind(self.type)


def keys() -> dict[str, Key]:
    """Every key by its path, in the order of the settings."""
    return {key.path: key for key in _walk(Settings, "")}


def keys_of(struct: type[msgspec.Struct]) -> list[Key]:
    """The keys of a table that users name themselves."""
    return list(_walk(struct, ""))


def _walk(struct: type[msgspec.Struct], prefix: str) -> Iterator[Key]:
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        path = prefix + field.name
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from _walk(hint, path + ".")
            continue
        meta = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, msgspec.Meta)), None)
        meaning = (meta.description if meta else None) or ""
        if prefix == "limits.":
            least, most, meaning = LIMITS[field.name]
            hint = Annotated[int, msgspec.Meta(ge=least, le=most)]
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        yield Key(path, hint, default, meaning)


def plain(hint: Any) -> Any:
    """The type without its annotations and without "| None"."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        rest = [part for part in get_args(hint) if part is not type(None)]
        return plain(rest[0]) if len(rest) == 1 else hint
    return hint


def kind(hint: Any) -> str:
    """A type as text, for messages and the docs page."""
    bare = plain(hint)
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(f'"{word}"' for word in get_args(bare))
    if get_origin(bare) in (tuple, list):
        return "a list of whole numbers" if plain(get_args(bare)[0]) is int else "a list of strings"
    if get_origin(bare) is dict:
        return "a table"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}.get(bare, str(bare))
