"""The settings of the EXFE dialect, in our units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..ladder import RetrySettings
from ..settings import Namespace


class ExfeSettings(RetrySettings, frozen=True, forbid_unknown_fields=True):
    """Callback addresses that are not public must be in push.allow."""

    namespace: Namespace = "exfe"
    retry: Annotated[
        str,
        Meta(
            description='The waits between attempts of a callback; then the group is dead. "off": a single attempt, '
            "then the group is gone, as in the original. Applies to pushes from now on.",
        ),
    ] = "10s, 1m, 5m, 30m, 2h"
    timeout_ms: Annotated[int, Meta(ge=100, le=3_600_000, description="How long a callback may take.")] = 30_000
    concurrency: Annotated[
        int, Meta(ge=1, le=10_000, description="Concurrent callbacks, over all processes; push.per_host is per host.")
    ] = 256
