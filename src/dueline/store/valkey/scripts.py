"""The Lua operations: loads the .lua files, resolves their includes and computes their hashes.

An operation file is `#!lua flags`, a header (purpose, KEYS, ARGV, RETURN, BOUND), then its code; a line
`-- include name` is replaced by lib/name.lua. An operation includes only what it uses, because every line costs the
store time. The busy ones (send, pull, ack) have their usual case before the includes that the rest needs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

import msgspec

OPERATIONS = (
    "send",
    "pull",
    "ack",
    "release",
    "extend",
    "cancel",
    "edit",
    "read",
    "list",
    "stats",
    "control",
    "dead",
    "clean",
    "directory",
    "push",
    "append",
    "audit",
    "tokens",
    "epochs",
    "stored_ids",
    "fence",
    "charts",
    "groups",
    "events",
    "workers",
    "forecast",
)
_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)

Patch = Callable[[str, str], str]


class Script(msgspec.Struct, frozen=True):
    name: str
    source: str
    sha: str


@cache
def source_of(name: str) -> str:
    """The text of one file below store/lua, such as "send" or "lib/head"."""
    return resources.files("dueline.store").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


@cache
def load_scripts(patch: Patch | None = None) -> Mapping[str, Script]:
    """All operations, ready to run; the same for every store that this process opens. `patch(name, source)` lets a test
    break a rule on purpose."""

    def text(name: str) -> str:
        source = source_of(name)
        return patch(name, source) if patch else source

    scripts: dict[str, Script] = {}
    for name in OPERATIONS:
        shebang, _, code = text(name).partition("\n")
        code = _INCLUDE.sub(lambda found: text(f"lib/{found[1]}"), code)
        source = f"{shebang}\n{_COMMENT.sub('', code)}"
        scripts[name] = Script(name, source, hashlib.sha1(source.encode()).hexdigest())
    return MappingProxyType(scripts)
