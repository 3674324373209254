"""The log: one line per event on stderr, JSON for programs, text for people, never with a secret.

`auto` is JSON unless stderr is a terminal. Two lines that people and scripts read stay plain text: the ready line on
stdout, and the reason why a server does not start. With `json` every line is JSON.

All lines go through the standard library's `logging` and one formatter, so every line has the same shape and passes the
same redaction. Those of an `EventLog` also have fields. Job bodies are never logged.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

import msgspec

from ..event_log import Event, EventLog
from ..redaction import redacted

_SECRET_KEY = re.compile(r"token|passw|secret|authorization|cookie|api_?key|credential", re.IGNORECASE)
_COLOURS = {"info": 32, "warning": 33, "error": 31, "critical": 31}  # of a terminal


def configure(
    level: str = "info", format: str = "auto", stream: TextIO | None = None, always: Mapping[str, object] | None = None
) -> None:
    """Set up the log of this process. `format`: auto, json or text. `always`: fields of every line."""
    out = stream if stream is not None else sys.stderr
    as_json = format == "json" or (format == "auto" and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(_JsonLines(always) if as_json else _TextLines(always, out.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if as_json:
        logging.captureWarnings(True)
        sys.excepthook = _uncaught


class _Lines(logging.Formatter):
    """Turns a log record into a line. A subclass writes it."""

    def __init__(self, always: Mapping[str, object] | None) -> None:
        super().__init__()
        self._always = dict(always or {})

    def format(self, record: logging.LogRecord) -> str:
        event = record.msg if isinstance(record.msg, Event) else Event(record.getMessage(), {})
        line: dict[str, Any] = {**self._always, **event.fields, "event": event.text, "level": record.levelname.lower()}
        line |= {"logger": record.name, "timestamp": _time(datetime.fromtimestamp(record.created, UTC))}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return self.write(redact(line))

    def write(self, line: dict[str, Any]) -> str:
        raise NotImplementedError


class _JsonLines(_Lines):
    def write(self, line: dict[str, Any]) -> str:
        return json.dumps(line, ensure_ascii=False, default=repr)


class _TextLines(_Lines):
    def __init__(self, always: Mapping[str, object] | None, colours: bool) -> None:
        super().__init__(always)
        self._colours = colours

    def write(self, line: dict[str, Any]) -> str:
        time, level, text, logger = (line.pop(name) for name in ("timestamp", "level", "event", "logger"))
        trace = line.pop("exception", None)
        shown = f"{level:<8}"
        if self._colours:
            shown, text = f"\x1b[{_COLOURS.get(level, 0)}m{shown}\x1b[0m", f"\x1b[1m{text}\x1b[0m"
        fields = (f"{name}={value if _is_word(value) else repr(value)}" for name, value in line.items())
        return " ".join((time, f"[{shown}]", text, f"[{logger}]", *fields)) + ("" if trace is None else f"\n{trace}")


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and " " not in value and value != ""


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def announce(text: str, format: str, **fields: object) -> None:
    """Print a line on stdout that people and scripts wait for."""
    if format == "json":
        line = {"event": text, **fields, "level": "info", "logger": "dueline.server"}
        line["timestamp"] = _time(datetime.now(UTC))
        text = msgspec.json.encode(line).decode()
    print(text, flush=True)


def refuse(text: str, format: str) -> None:
    """Print on stderr why a server does not start or cannot continue."""
    if format == "json":
        configure(format=format)
        EventLog("dueline.server").error(text)
    else:
        print(f"dueline: {text}", file=sys.stderr, flush=True)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("dueline").critical("the process ends because of a bug", exc_info=(kind, error, trace))


def redact(line: dict[str, Any]) -> dict[str, Any]:
    """The line without secrets, which are found by the name of the field and by patterns in the text."""
    return _without_secret_keys(redacted(line))


def _without_secret_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: "***" if _SECRET_KEY.search(str(k)) else _without_secret_keys(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_without_secret_keys(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
