"""The class form of a handler: one class per type of task, discovered in the modules that a worker names.

    class CloseOrder(TaskWorker):
        type = "order.close"

        def invoke(self, params: Order) -> None: ...

`type` is the topic. Several classes may have the same type: all of them are invoked, ordered by module and then by
line. A class without a `type` is a base class and is not bound.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import Any, ClassVar

from ..client.times import Duration
from .handlers import Handler, HandlerLocation, Mode, handler_of


class TaskWorker:
    """Works on the tasks of one type. Each worker creates one instance, without arguments.

    A subclass sets `type`, which is the topic, and optionally `mode`, `timeout` and `concurrency` as in
    `Worker.handles`."""

    type: ClassVar[str] = ""
    mode: ClassVar[Mode | None] = None
    timeout: ClassVar[Duration | None] = None
    concurrency: ClassVar[int | None] = None

    def invoke(self, params: Any) -> Any:
        """Handle a job, given its body (and a Context, if there is a second parameter). May be a coroutine function."""
        raise NotImplementedError(f"{type(self).__qualname__} has no invoke")


def task_handler(kind: type[TaskWorker]) -> Handler:
    """The handler for a class. Raises TypeError or ValueError."""
    if not kind.type:
        raise ValueError(f"{kind.__module__}.{kind.__qualname__} has no type")
    if kind.invoke is TaskWorker.invoke:
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no invoke")
    location = HandlerLocation(kind.__module__, kind.__qualname__)
    return handler_of(kind.type, kind().invoke, location, kind.mode, kind.timeout, kind.concurrency)


def find_tasks(modules: Iterable[str | ModuleType]) -> list[type[TaskWorker]]:
    """The classes with a `type` that these modules define; packages are searched recursively."""
    found: list[type[TaskWorker]] = []
    for named in modules:
        first = importlib.import_module(named) if isinstance(named, str) else named
        for module in [first, *_inside(first)]:
            own = [
                value
                for value in vars(module).values()
                if inspect.isclass(value)
                and issubclass(value, TaskWorker)
                and value.__module__ == module.__name__
                and value.type
                and not inspect.isabstract(value)
            ]
            found += [kind for kind in own if kind not in found]
    return found


def _inside(package: ModuleType) -> list[ModuleType]:
    paths = getattr(package, "__path__", None)
    if paths is None:
        return []
    names = sorted(info.name for info in pkgutil.walk_packages(paths, f"{package.__name__}."))
    return [importlib.import_module(name) for name in names if not name.endswith(".__main__")]
