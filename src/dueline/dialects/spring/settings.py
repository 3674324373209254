"""The settings of the Spring dialect, in our units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ...engine.policy import TEN_YEARS_MS
from ..ladder import RetrySettings
from ..settings import Namespace


class SpringSettings(RetrySettings, frozen=True, forbid_unknown_fields=True):
    """A worker answers when its work is done, and until then no other worker may start the same job. So by default a
    call may last as long as its connection is open."""

    namespace: Namespace = "spring"
    retry: Annotated[
        str,
        Meta(
            description='The waits between attempts when instances exist but all fail; then the job is dead. "off": a '
            "single attempt. Applies to jobs added from now on.",
        ),
    ] = "5s, 30s, 2m, 10m, 30m, 2h"
    timeout_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600_000,
            description="How long an application may work on a job; then the next instance is called, while the first "
            "may still be working. 0: as long as the connection is open.",
        ),
    ] = 0
    no_instance_limit_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=TEN_YEARS_MS,
            description="A job that is not delivered this long after its due time is dead. 0: a job without an "
            "instance waits forever.",
        ),
    ] = 0
