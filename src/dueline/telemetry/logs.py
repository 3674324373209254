"""The log: one line per event on stderr, JSON for programs, text for people, never with a secret.

`auto` is JSON unless stderr is a terminal, except for the few lines that people and scripts read: the ready line on
stdout, and the reason why a server does not start. These are plain text. With `json` every line is JSON.

structlog and the standard library's logging share one handler, so every line has the same shape and passes the same
redaction. Job bodies are never logged.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

import msgspec
import structlog

_SECRET_KEY = re.compile(r"token|passw|secret|authorization|cookie|api_?key|credential", re.IGNORECASE)
_SECRET_TEXT = (
    (re.compile(r"(\w[\w+.-]*://)[^\s/@]+@"), r"\1***@"),  # user and password of an address
    (re.compile(r"\bdl_([A-Za-z0-9]+)_[A-Za-z0-9_-]{20,}"), r"dl_\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (re.compile(r"whsec_[A-Za-z0-9+/=]{8,}"), "whsec_***"),
)


def configure(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:
    """Set up the log of this process. `format`: auto, json or text."""
    out = stream if stream is not None else sys.stderr
    as_json = format == "json" or (format == "auto" and not out.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        last += [structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer(ensure_ascii=False)]
    else:
        colors = out.isatty()
        last += [structlog.processors.format_exc_info, redact, structlog.dev.ConsoleRenderer(colors=colors)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.PositionalArgumentsFormatter()], processors=last
    )
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if as_json:
        logging.captureWarnings(True)
        sys.excepthook = _uncaught


def announce(text: str, format: str, **fields: object) -> None:
    """Print a line on stdout that people and scripts wait for."""
    if format == "json":
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = {"event": text, **fields, "level": "info", "logger": "dueline.server", "timestamp": now}
        text = msgspec.json.encode(line).decode()
    print(text, flush=True)


def refuse(text: str, format: str) -> None:
    """Print one line on stderr: why a server does not start or cannot continue."""
    if format == "json":
        configure(format=format)
        structlog.get_logger("dueline.server").error(text)
    else:
        print(f"dueline: {text}", file=sys.stderr, flush=True)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("dueline").critical("the process ends because of a bug", exc_info=(kind, error, trace))


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove secrets from an event, by the name of the key and by patterns in the text."""
    for key, value in list(event.items()):
        event[key] = "***" if _SECRET_KEY.search(key) else _cleaned(value)
    return event


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, replacement in _SECRET_TEXT:
            value = pattern.sub(replacement, value)
    elif isinstance(value, dict):
        return {k: "***" if _SECRET_KEY.search(str(k)) else _cleaned(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    elif isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
