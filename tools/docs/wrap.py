"""Wraps the prose of a generated page at 100 columns. Code, tables and headings stay as they are, and short pieces of
code in the prose are not split."""

from __future__ import annotations

import re
import textwrap

WIDTH = 100
_KEPT = re.compile(r"    |\||#|```")
_CODE = re.compile(r"`[^`]{1,60}`")
_GLUE = "\x00"  # in place of a space that must not become a line break
_ITEM = re.compile(r"(?:[-*]|\d+\.) +")


def wrapped(page: str) -> str:
    """The page with every paragraph and list item wrapped."""
    lines: list[str] = []
    block: list[str] = []
    fenced = False

    def flush() -> None:
        if block:
            item = _ITEM.match(block[0])
            indent = " " * len(item[0]) if item else ""
            text = _CODE.sub(lambda code: code[0].replace(" ", _GLUE), " ".join(line.strip() for line in block))
            parts = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
            lines.extend(part.replace(_GLUE, " ") for part in parts)
            block.clear()

    for line in page.split("\n"):
        fence = line.startswith("```")
        if fenced or fence or not line.strip() or _KEPT.match(line):
            flush()
            lines.append(line)
            fenced ^= fence
            continue
        if _ITEM.match(line):
            flush()
        block.append(line)
    flush()
    return "\n".join(lines)
