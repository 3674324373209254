"""The state of an embedded store, as its supervisor reports it."""

from __future__ import annotations

from enum import Enum

import msgspec


class StoreState(Enum):
    """The state of the child. It serves only in READY."""

    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DOWN = "down"  # it ended or does not answer; it is being restarted
    DISK_FULL = "disk_full"
    FAILED = "failed"  # it will not be restarted


class Status(msgspec.Struct, frozen=True):
    """The status of the child and its data.

    `low_space`: sends are refused because the disk is nearly full. `missing_bytes`: bytes that vanished from the
    append-only file while the store runs. `lost_bytes`, `accepted_at_ms`: a loss that an operator has accepted.
    """

    state: StoreState
    detail: str = ""
    pid: int | None = None
    restarts: int = 0
    low_space: bool = False
    free_bytes: int | None = None
    missing_bytes: int = 0
    lost_bytes: int = 0
    accepted_at_ms: int | None = None
