"""Groups: one per application and type. A group is a topic that is pushed to the application's instances.

The original's key of a group is `<app>-<type>`, which (order, pay-close) and (order-pay, close) share. Jobs of one must
not wait for the other's application, so topics tell them apart:

    <app>-<type>                          split at the last dash
    <app>-<type>~<characters of app>      when the type holds a dash or "~", which would mislead

A job without an application is in a group of its own, `null-<type>`, or `null-<type>~0` when the type would mislead;
the application that is really called "null" always has its number.
"""

from __future__ import annotations

import re

from ...engine.dialect_targets import DialectTarget
from ...engine.engine import Engine
from ...engine.push_target import PushTarget
from .options import SpringOptions

COURIER = "spring"
NOBODY = "null"  # what the original makes of an application that was not named; jobs of such a group go nowhere
_NUMBER = re.compile(r"~([0-9]+)\Z", re.ASCII)


def group_of(app_name: str | None, task_type: str) -> str:
    """The topic of a group; no two groups have the same."""
    key = f"{NOBODY if app_name is None else app_name}-{task_type}"
    if "-" in task_type or "~" in task_type or app_name == NOBODY:
        return f"{key}~{len(app_name or '')}"
    return key


def parts_of(group: str) -> tuple[str, str] | None:
    """The application and the type of a group: split after as many characters as the number at its end says (`~n`), or
    at the last dash. None: no application has this name."""
    number = _NUMBER.search(group)
    if number is not None:
        end, place = number.start(), int(number[1])
        return (group[:place], group[place + 1 : end]) if place < end and group[place] == "-" else None
    app, dash, type = group.rpartition("-")
    return (app, type) if dash and app != NOBODY else None


def key_of(group: str) -> str:
    """What the original calls this group; others may be called so too."""
    return _NUMBER.sub("", group)


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
        self._standing = DialectTarget(engine, options.namespace, target)

    async def serve(self, group: str, nowhere: bool) -> None:
        """See to it that the group has its target. `nowhere`: its jobs name no application; it begins paused."""
        await self._standing.serve(group, paused=nowhere)

    async def list(self) -> list[str]:
        """The keys of all groups, by name, each once."""
        return sorted({key_of(group) for group in await self._standing.topics()})
