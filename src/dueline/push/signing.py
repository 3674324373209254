"""How a receiver knows that a call is ours and unchanged: Standard Webhooks 1.0, symmetric. No I/O.

webhook-id          the delivery, the same over all its attempts: the receiver's key against doubles
webhook-timestamp   seconds, of this attempt: a receiver refuses old ones, so that nobody can replay a recorded call
webhook-signature   "v1," + base64 of HMAC-SHA256(secret, id "." timestamp "." body); one per secret, with a space
                    between: while a secret is being changed, receivers with the old one and the new one both agree
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from ..engine.errors import InvalidField

PREFIX = "whsec_"
LEAST_BYTES = 24
MOST_BYTES = 64


def webhook_id(namespace: str, topic: str, id: str, created_at_ms: int) -> str:
    """The name of a job's delivery: "msg_" and 32 URL-safe characters. The time of its sending is part of it, because
    an id may be used again after its job is gone, or by a replacement, and that is another delivery."""
    digest = hashlib.sha256()
    for part in (namespace, topic, id, str(created_at_ms)):
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big") + data)  # with lengths, so that no two lists of parts look alike
    return "msg_" + base64.urlsafe_b64encode(digest.digest()[:24]).decode("ascii")


def signed(secrets: Sequence[str], id: str, timestamp_s: int, body: bytes) -> tuple[tuple[str, str], ...]:
    """The headers of a signed call; without a secret there is no signature, but still id and time."""
    headers = [("webhook-id", id), ("webhook-timestamp", str(timestamp_s))]
    if secrets:
        text = b"%s.%d." % (id.encode(), timestamp_s) + body
        marks = (hmac.digest(_key(secret), text, "sha256") for secret in secrets)
        value = " ".join("v1," + base64.b64encode(mark).decode("ascii") for mark in marks)
        headers.append(("webhook-signature", value))
    return tuple(headers)


def check_secret(secret: str, field: str = "secrets") -> str:
    """The secret as it is, or InvalidField. A message never shows it."""
    try:
        size = len(_key(secret))
    except ValueError:
        raise InvalidField(f"must be {PREFIX} and base64", field) from None
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise InvalidField(f"must have {LEAST_BYTES} to {MOST_BYTES} bytes in its base64, has {size}", field)
    return secret


def masked(secret: str) -> str:
    """A secret as it may be shown: enough to tell two apart."""
    return f"{PREFIX}...{secret[-4:]}" if len(secret) >= len(PREFIX) + 16 else f"{PREFIX}..."


def _key(secret: str) -> bytes:
    """The bytes that sign. Raises ValueError."""
    if not secret.startswith(PREFIX) or not secret.isascii():
        raise ValueError("not a secret")
    try:
        return base64.b64decode(secret[len(PREFIX) :], validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
