"""Groups: one per application and type. A group is a topic that is pushed to the application's instances.

The original's key of a group is `<app>-<type>`, which is the same for (order, pay-close) and (order-pay, close). Jobs
of one must not wait for the other's application, so their topics differ:

    <app>-<type>                      split at the last dash
    <app>-<type>~<length of app>      if the type contains a dash or "~", which would be ambiguous

A job without an application is in a group of its own: `null-<type>`, or `null-<type>~0` if the type is ambiguous. An
application that is really called "null" always has its length appended.
"""

from __future__ import annotations

import re

from ...engine.dialect_targets import DialectTarget
from ...engine.engine import Engine
from ...engine.push_target import PushTarget
from .settings import SpringSettings

COURIER = "spring"
NO_APPLICATION = "null"  # the original's name for a missing application; jobs of such a group are not delivered
_NUMBER = re.compile(r"~([0-9]+)\Z", re.ASCII)


def group_of(app_name: str | None, task_type: str) -> str:
    """The topic of a group, unique for each group."""
    key = f"{NO_APPLICATION if app_name is None else app_name}-{task_type}"
    if "-" in task_type or "~" in task_type or app_name == NO_APPLICATION:
        return f"{key}~{len(app_name or '')}"
    return key


def parts_of(group: str) -> tuple[str, str] | None:
    """The application and the type of a group: split after n characters if its name ends with `~n`, else at the last
    dash. None: no application has this group."""
    number = _NUMBER.search(group)
    if number is not None:
        end, place = number.start(), int(number[1])
        return (group[:place], group[place + 1 : end]) if place < end and group[place] == "-" else None
    app, dash, type = group.rpartition("-")
    return (app, type) if dash and app != NO_APPLICATION else None


def key_of(group: str) -> str:
    """The original's key of this group, which other groups may share."""
    return _NUMBER.sub("", group)


class Groups:
    """The groups. Each gets its push target before its first job."""

    def __init__(self, engine: Engine, settings: SpringSettings) -> None:
        target = PushTarget(
            courier=COURIER,
            concurrency=1,  # one call at a time over all processes, to keep the order
            success=(200,),
            timeout_ms=settings.timeout_ms or None,
            retry=settings.ladder(),
            breaker=None,  # not needed: the retry ladder slows down a group whose instances fail
        )
        self._target = DialectTarget(engine, settings.namespace, target)

    async def serve(self, group: str, nowhere: bool) -> None:
        """Make sure that the group has its target. `nowhere`: its jobs name no application, so it starts paused."""
        await self._target.serve(group, paused=nowhere)

    async def list(self) -> list[str]:
        """The keys of all groups, sorted and without duplicates."""
        return sorted({key_of(group) for group in await self._target.topics()})
