"""Removes secrets from texts that are logged or stored for people to read, by their patterns. No I/O."""

from __future__ import annotations

import re
from typing import Any

_SECRETS = (
    # a header of a request, as somebody wrote it into a text or into JSON
    (
        re.compile(r"(?i)\b(authorization|cookie|x-api-key)(\\?[\"']?\s*[:=]\s*\\?[\"']?)[^\s\"'*][^\"'\r\n]*"),
        r"\1\2***",
    ),
    (re.compile(r"(\w[\w+.-]*://)[^\s/@]+@"), r"\1***@"),  # user and password of an address
    (re.compile(r"\bdl_([A-Za-z0-9]+)_[A-Za-z0-9_-]{20,}"), r"dl_\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (re.compile(r"whsec_[A-Za-z0-9+/=]{8,}"), "whsec_***"),
)


def redacted(value: Any) -> Any:
    """The value without secrets in its texts. Lists and mappings are copied."""
    if isinstance(value, str):
        for pattern, replacement in _SECRETS:
            value = pattern.sub(replacement, value)
    elif isinstance(value, dict):
        return {key: redacted(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    elif isinstance(value, list | tuple):
        return [redacted(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value
