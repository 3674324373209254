"""Groups: one per application and type. A group is a topic that is pushed to the application's instances.

The target is written to the topic's config before the first job is sent, so that no job can be in a group that nobody
serves; being in the store, it is also how groups survive a restart. A process looks at most once a minute whether it is
still there. The settings of this dialect are the truth for its groups: a target that says something else is set anew,
unless somebody gave the topic a target of another kind.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from ...engine.engine import Engine
from ...engine.errors import NotFound
from ...engine.push_target import PushTarget
from .options import SpringOptions

COURIER = "spring"
NOBODY = "null"  # what the original makes of an application that was not named; jobs of such a group go nowhere
MAX_KNOWN = 100_000
SURE_S = 60.0


def group_of(app_name: str | None, task_type: str) -> str:
    return f"{NOBODY if app_name is None else app_name}-{task_type}"


class Groups:
    """The groups that this process has seen."""

    def __init__(self, engine: Engine, options: SpringOptions) -> None:
        self._engine = engine
        self._namespace = options.namespace
        self._target = PushTarget(
            courier=COURIER,
            concurrency=1,  # one call at a time, over all processes: in order
            success=(200,),
            timeout_ms=options.timeout_ms,
            retry=options.retry,
            breaker=None,  # a group whose instances fail has its ladder; there is nobody else to spare
        )
        self._sure_until_s: dict[str, float] = {}

    async def serve(self, group: str) -> None:
        """See to it that the group has its target."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._sure_until_s.get(group, 0.0):
            return
        wanted = replace(self._target, paused=group.startswith(f"{NOBODY}-"))
        try:
            found = await self._engine.push_target(self._namespace, group)
        except NotFound:
            found = None
        if found is not None:
            wanted = replace(wanted, paused=found.paused)
        if found is None or (found.courier == COURIER and found != wanted):
            await self._engine.set_push(self._namespace, group, wanted)
        if len(self._sure_until_s) >= MAX_KNOWN:
            self._sure_until_s.clear()
        self._sure_until_s[group] = now_s + SURE_S

    async def list(self) -> list[str]:
        """All groups, by name."""
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page, cursor = await self._engine.pushing(self._namespace, cursor, 500)
            found += [one.topic for one in page if one.target.courier == COURIER]
        return found
