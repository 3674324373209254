"""Bodies between protocols: what one stored, another shows. String protocols show JSON as its text, bytes as base64."""

from __future__ import annotations

import base64

from ..engine.job import BodyKind


def text_of(body: bytes, kind: BodyKind) -> str:
    """A body as a string protocol shows it."""
    if kind is BodyKind.BYTES:
        return base64.b64encode(body).decode()
    return body.decode(errors="replace")
