"""All limits of the product, in one place. No I/O. Config may change the defaults within the hard bounds."""

from __future__ import annotations

import msgspec

from .errors import InvalidField

LAST_MS = 253_402_300_799_999  # 9999-12-31: due times are clamped to [now, this]
MAX_ID_BYTES = 512
BATCH_JOBS = 500  # per script call
BATCH_BYTES = 1 << 20  # of bodies per script call; a larger single body gets its own call
PULL_BYTES = 1 << 20
MAX_REFUNDS = 100
MAX_ERROR_BYTES = 1024
MAX_STORED_IDS = 2000  # what one call of Store.stored_ids returns; more ids would belong to nearly all cells
CELLS = 1024
INTERNAL_NAMESPACE = "dueline.internal"  # the server's own: the directory entry that counts changes, schedules


class Limits(msgspec.Struct, frozen=True):
    """Limits that the config can set (section [limits])."""

    max_body_bytes: int = 256 * 1024
    max_request_bytes: int = 4 << 20
    max_items: int = 1000
    max_pull: int = 1000
    max_wait_ms: int = 300_000
    max_lease_ms: int = 7 * 86_400_000
    max_delay_ms: int = 10 * 366 * 86_400_000
    max_attempts: int = 10_000
    max_tags: int = 16
    max_tag_bytes: int = 64
    max_headers: int = 32
    max_headers_bytes: int = 8 * 1024
    max_queued_jobs: int = 10_000  # waiting for a script call, per partition
    max_queued_bytes: int = 16 << 20
    max_waiters: int = 100_000
    max_history_bytes: int = 8 << 20  # of all histories of a partition; 0: none are kept


def check_name(name: str, field: str) -> str:
    """Return the name of a topic, job or namespace if it has 1..512 UTF-8 bytes and no control characters."""
    if name.isascii() and name.isprintable() and 1 <= len(name) <= MAX_ID_BYTES:
        return name  # fast path for nearly all names: no copy is made to count the bytes
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidField("has an unpaired surrogate, which UTF-8 cannot encode", field) from None
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidField(f"must have 1 to {MAX_ID_BYTES} bytes, has {size}", field)
    if not name.isprintable() and any(ord(c) < 32 or ord(c) == 127 for c in name):
        raise InvalidField("has a control character", field)
    return name


def is_name(name: str) -> bool:
    """Whether a topic or job can have this name. Protocols without limits may ask for names that cannot exist."""
    try:
        check_name(name, "name")
    except InvalidField:
        return False
    return True
