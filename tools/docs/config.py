"""Generates the configuration page from the table of settings: `python -m tools.docs.config > docs/config.md`."""

from __future__ import annotations

import json
from typing import get_args

from dueline.config.table import Key, keys, keys_of, plain
from tools.docs.wrap import wrapped

_HEAD = """# Configuration

Generated from the table of settings (`make docs`); do not edit.

A value can be set in several places. The first of these takes precedence:

1. a flag of `dueline serve`
2. the key's environment variable
3. the configuration file of another delay queue (`--ouqiang-config`, see [its page](dialects/ouqiang.md))
4. the TOML file given with `--config`
5. the default

An unknown key, a wrong type or a value out of bounds stops the server with exit code 2 and the name of the key.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    section = ""
    for key in keys().values():
        own, _, name = key.path.rpartition(".")
        if not own:
            parts.append(_tables(key, name))
            continue
        if own != section:
            section = own
            parts.append(
                f"\n## [{section}]\n\n| key | type | default | meaning | variable | flag |\n|---|---|---|---|---|---|\n"
            )
        parts.append(_row(key))
    return wrapped("".join(parts))


def _row(key: Key) -> str:
    name = key.path.rsplit(".", 1)[1]
    default = "" if key.default is None else f"`{_toml(key.default)}`"
    flag = f"`{key.flag}`" if key.flag else ""
    return f"| `{name}` | {key.kind} | {default} | {key.meaning} | `{key.variable}` | {flag} |\n"


def _toml(value: object) -> str:
    """A default, written as in a TOML file; a string without its quotes."""
    if isinstance(value, tuple):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tables(key: Key, name: str) -> str:
    """A key whose value is tables by name, such as [namespaces.NAME]."""
    _, struct = get_args(plain(key.type))
    head = (
        f"\n## [{name}.NAME]\n\n{key.meaning} Only in the TOML file.\n\n"
        "| key | type | default | meaning |\n|---|---|---|---|\n"
    )
    rows = (
        f"| `{one.path}` | {one.kind} | {'' if one.default is None else f'`{one.default}`'} | {one.meaning} |\n"
        for one in keys_of(struct)
    )
    return head + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
