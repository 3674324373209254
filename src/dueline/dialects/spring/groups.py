"""Groups: one per application and type. A group is a topic that is pushed to the application's instances."""

from __future__ import annotations

from ...engine.engine import Engine
from ...engine.push_target import PushTarget
from ...engine.standing import StandingTarget
from .options import SpringOptions

COURIER = "spring"
NOBODY = "null"  # what the original makes of an application that was not named; jobs of such a group go nowhere


def group_of(app_name: str | None, task_type: str) -> str:
    return f"{NOBODY if app_name is None else app_name}-{task_type}"


class Groups:
    """The groups, each with its target from before its first job on."""

    def __init__(self, engine: Engine, options: SpringOptions) -> None:
        target = PushTarget(
            courier=COURIER,
            concurrency=1,  # one call at a time, over all processes: in order
            success=(200,),
            timeout_ms=options.timeout_ms,
            retry=options.retry,
            breaker=None,  # a group whose instances fail has its ladder; there is nobody else to spare
        )
        self._standing = StandingTarget(engine, options.namespace, target)

    async def serve(self, group: str) -> None:
        """See to it that the group has its target."""
        await self._standing.serve(group, paused=group.startswith(f"{NOBODY}-"))

    async def list(self) -> list[str]:
        """All groups, by name."""
        return await self._standing.topics()
