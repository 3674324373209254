"""What is known about a dialect before it runs: a row of the table. Settings, flags and docs are made from it, so it
loads no handlers; `build` imports them when a server starts. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .settings import DialectSettings

if TYPE_CHECKING:
    from .contract import Dialect, DialectContext


class Unreadable(Exception):
    """A configuration file of the original cannot be read. Exit code 2."""


class FileValues(msgspec.Struct, frozen=True):
    """`values`: key of our settings -> (value, its source). `notes`: remarks to log at the start."""

    values: Mapping[str, tuple[Any, str]]
    notes: tuple[str, ...] = ()


class ConfigFile(msgspec.Struct, frozen=True):
    """The original's own configuration file: a flag of `dueline serve`. `read` raises Unreadable. `example`: a path."""

    flag: str
    help: str
    example: str
    read: Callable[[Path], FileValues]


class DialectSpec(msgspec.Struct, frozen=True):
    """`name`: of its package and of its section in the settings. `build` gets that section. `namespace_ids`: the
    protocol addresses a job without its topic, so its namespace has namespace-scoped ids."""

    name: str
    settings: type[DialectSettings]
    build: Callable[[Any, DialectContext], Dialect]
    namespace_ids: bool = False
    config_file: ConfigFile | None = None
