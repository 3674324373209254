"""Call signatures, by which a receiver verifies that a call is ours and unchanged: Standard Webhooks 1.0, symmetric.
No I/O.

webhook-id          identifies the delivery and is the same for all its attempts; receivers use it to drop duplicates
webhook-timestamp   the time of this attempt in seconds; receivers reject old ones, so that a call cannot be replayed
webhook-signature   "v1," + base64 of HMAC-SHA256(secret, id "." timestamp "." body), one per secret, separated by
                    spaces: during a rotation, receivers with the old or the new secret both accept the call
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
    """The id of a job's delivery: "msg_" and 32 URL-safe characters. It includes the job's creation time, because a job
    id may be used again later or by a replacement, which is another delivery."""
    digest = hashlib.sha256()
    for part in (namespace, topic, id, str(created_at_ms)):
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big") + data)  # length-prefixed, so that different parts never collide
    return "msg_" + base64.urlsafe_b64encode(digest.digest()[:24]).decode("ascii")


def signed(secrets: Sequence[str], id: str, timestamp_s: int, body: bytes) -> tuple[tuple[str, str], ...]:
    """The headers of a signed call. Without a secret there is no signature, only the id and the time."""
    headers = [("webhook-id", id), ("webhook-timestamp", str(timestamp_s))]
    if secrets:
        text = b"%s.%d." % (id.encode(), timestamp_s) + body
        digests = (hmac.digest(_key(secret), text, "sha256") for secret in secrets)
        value = " ".join("v1," + base64.b64encode(digest).decode("ascii") for digest in digests)
        headers.append(("webhook-signature", value))
    return tuple(headers)


def check_secret(secret: str, field: str = "secrets") -> str:
    """Return the secret unchanged, or raise InvalidField. The message never contains the secret."""
    try:
        size = len(_key(secret))
    except ValueError:
        raise InvalidField(f"must be {PREFIX} followed by base64", field) from None
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise InvalidField(f"must decode to {LEAST_BYTES} to {MOST_BYTES} bytes, has {size}", field)
    return secret


def masked(secret: str) -> str:
    """A secret shortened for display: enough to tell two apart."""
    return f"{PREFIX}...{secret[-4:]}" if len(secret) >= len(PREFIX) + 16 else f"{PREFIX}..."


def _key(secret: str) -> bytes:
    """The signing key. Raises ValueError."""
    if not secret.startswith(PREFIX) or not secret.isascii():
        raise ValueError("not a secret")
    try:
        return base64.b64decode(secret[len(PREFIX) :], validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
