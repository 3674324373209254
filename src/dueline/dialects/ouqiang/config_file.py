"""The configuration file of ouqiang/delay-queue, read as that program reads it.

    bind_address                     dialects.ouqiang.listen
    queue_block_timeout              dialects.ouqiang.hold_ms (seconds there)
    redis.host, .db, .password       store.url; without any of them jobs are kept in the embedded store
    all other keys                   have no effect here, which is reported

It is an INI file in which only the keys before the first section count. An empty value or an invalid number means the
original's default. A file that cannot be read stops the server with the original's error text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..spec import FileValues, Unreadable

LONGEST_HOLD_S = 300
DEFAULT_HOLD_S = 178
DEFAULT_HOST, DEFAULT_DB = "127.0.0.1:6379", 1
STORE = frozenset({"redis.host", "redis.db", "redis.password"})
USED = STORE | {"bind_address", "queue_block_timeout"}
UNUSED = (
    "bucket_size",
    "bucket_name",
    "queue_name",
    "redis.max_idle",
    "redis.max_active",
    "redis.connect_timeout",
    "redis.read_timeout",
    "redis.write_timeout",
)


def read(file: Path) -> FileValues:
    """Raises Unreadable, with the original's error text and a hint."""
    try:
        keys = dict(_keys(file.read_text(encoding="utf-8-sig", errors="replace")))
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Unreadable(
            f"无法解析配置文件#{file}: {why} (--ouqiang-config takes the configuration file of ouqiang/delay-queue: "
            "lines of key = value; ours is given with --config)"
        ) from None
    values: dict[str, tuple[Any, str]] = {}
    notes = list(_without_effect(keys))
    if address := keys.get("bind_address"):
        values["dialects.ouqiang.listen"] = (_address(address), f"bind_address in {file}")
    if "queue_block_timeout" in keys:
        hold_s, note = _hold_s(keys["queue_block_timeout"])
        values["dialects.ouqiang.hold_ms"] = (hold_s * 1000, f"queue_block_timeout in {file}")
        notes += [note] if note else []
    if not STORE.isdisjoint(keys):
        values["store.url"] = (_store_url(keys), f"redis.* in {file}")
    else:
        notes.append("no redis.host, redis.db or redis.password: jobs are kept in the embedded store")
    return FileValues(values, tuple(f"{file}: {note}" for note in notes))


def _keys(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            return  # the original ignores all sections
        found = re.fullmatch(r"([^=:]*?)\s*[=:](.*)", line)
        if found is None or not found[1]:
            raise ValueError(f"line {number}: no key and value")
        yield found[1], _value(found[2].strip())


def _value(text: str) -> str:
    """The value without a trailing comment and its quotes. Only backquotes protect # and ;."""
    if text.startswith("`"):
        return text[1:].partition("`")[0]
    text = re.split("[#;]", text, maxsplit=1)[0].rstrip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _number(text: str, default: int) -> int:
    return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) else default


def _address(text: str) -> str:
    """An address without a host means all interfaces, as in Go."""
    return f"0.0.0.0{text}" if text.startswith(":") else text


def _hold_s(text: str) -> tuple[int, str | None]:
    asked_s = _number(text, DEFAULT_HOLD_S)
    if asked_s <= 0:
        return DEFAULT_HOLD_S, f"queue_block_timeout = {asked_s}: taken as {DEFAULT_HOLD_S} (no pop waits for ever)"
    if asked_s > LONGEST_HOLD_S:
        return LONGEST_HOLD_S, f"queue_block_timeout = {asked_s}: taken as {LONGEST_HOLD_S}, the maximum"
    return asked_s, None


def _store_url(keys: dict[str, str]) -> str:
    host = keys.get("redis.host") or DEFAULT_HOST
    password = keys.get("redis.password", "")
    user = f":{quote(password, safe='')}@" if password else ""
    return f"redis://{user}{quote(host, safe='[]:.-_')}/{_number(keys.get('redis.db', ''), DEFAULT_DB)}"


def _without_effect(keys: dict[str, str]) -> Iterator[str]:
    unused = [name for name in UNUSED if name in keys]
    if unused:
        yield f"ignored: {', '.join(unused)} (there are no buckets, and connections are managed internally)"
    unknown = [name for name in keys if name not in USED and name not in UNUSED]
    if unknown:
        yield f"unknown keys, ignored: {', '.join(unknown)}"
