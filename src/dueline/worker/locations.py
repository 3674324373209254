"""Where a child process finds a handler: by its module, its name in that module, and its topic.

A name refers to its last definition. If two functions share a name, or a decorated function was bound to another name,
the child would run the wrong function, or none. So the worker checks before it starts, and the child checks again.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from .handle import Handle
from .handlers import Handler, HandlerLocation
from .tasks import TaskWorker


def handler_at(location: HandlerLocation, topic: str) -> Handle[..., Any] | type[TaskWorker]:
    """The handler of `topic` at `location`. Raises LookupError that names what is there instead."""
    name = f"{location.module}.{location.qualname}"
    there: Any = importlib.import_module(location.module)
    for part in location.qualname.split("."):
        if not hasattr(there, part):
            raise LookupError(f"{name} does not exist after its module was imported")
        there = getattr(there, part)
    one: Any = there
    while isinstance(one, Handle):  # several decorators on one function
        if one.topic == topic:
            return one
        one = one.inner
    if inspect.isclass(there) and issubclass(there, TaskWorker) and there.type == topic:
        return there
    raise LookupError(f"{name} is {there!r}, not the handler of {topic}")


def check_location(handler: Handler) -> None:
    """Raises ValueError for a handler that a child process would not find."""
    try:
        there = handler_at(handler.location, handler.topic)
        found = there.handler is handler if isinstance(there, Handle) else _is_made_of(handler, there)
        why = f"{handler.name} is also the name of something else"
    except LookupError as nothing:
        found, why = False, str(nothing)
    if not found:
        raise ValueError(f"a child process would not find the handler of {handler.topic}: {why}")


def _is_made_of(handler: Handler, kind: type[TaskWorker]) -> bool:
    return type(getattr(handler.call, "__self__", None)) is kind
