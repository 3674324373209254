"""Generates the configuration page from the table of settings: `python -m tools.docs.config > docs/config.md`."""

from __future__ import annotations

from dueline.config.table import Key, keys

_HEAD = """# Configuration

Made from the settings' own table (`python -m tools.docs.config`); do not edit by hand.

A key is set by a flag of `dueline serve`, else by its environment variable, else by a file of another delay queue
(`--ouqiang-config`, see [its page](dialects/ouqiang.md)), else in the TOML file given with `--config`, else it has its
default. An unknown key, a wrong type or a value out of bounds stops the server with exit
code 2 and the name of the key.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    section = ""
    for key in keys().values():
        own, _ = key.path.rsplit(".", 1)
        if own != section:
            section = own
            parts.append(
                f"\n## [{section}]\n\n| key | type | default | meaning | variable | flag |\n|---|---|---|---|---|---|\n"
            )
        parts.append(_row(key))
    return "".join(parts)


def _row(key: Key) -> str:
    name = key.path.rsplit(".", 1)[1]
    default = (
        "" if key.default is None else f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"
    )
    flag = f"`{key.flag}`" if key.flag else ""
    return f"| `{name}` | {key.kind} | {default} | {key.meaning} | `{key.variable}` | {flag} |\n"


if __name__ == "__main__":
    print(page(), end="")
