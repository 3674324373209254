"""The settings of the Youzan-style dialect, in our units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..settings import ForeignSettings, Namespace


class YouzanSettings(ForeignSettings, frozen=True, forbid_unknown_fields=True):
    """The protocol does not say how long a job may run, nor what an empty pop answers. Here an operator decides."""

    namespace: Namespace = "youzan"
    ttr_ms: Annotated[int, Meta(ge=1_000, description="Time to run, unless the job sets it.")] = 60_000
    empty_pop_success: Annotated[
        bool, Meta(description="Whether a pop that finds nothing is a success with id null, or an error.")
    ] = True
