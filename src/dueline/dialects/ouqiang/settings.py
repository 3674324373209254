"""The settings of the ouqiang dialect, in our units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..settings import ForeignSettings, Namespace


class OuqiangSettings(ForeignSettings, frozen=True, forbid_unknown_fields=True):
    """`hold_ms` is at most limits.max_wait_ms."""

    namespace: Namespace = "ouqiang"
    hold_ms: Annotated[
        int, Meta(ge=1, le=300_000, description="How long a pop is held when nothing is ready (queue_block_timeout).")
    ] = 178_000
