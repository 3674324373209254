"""A handler as data: what to call for a job of a topic, with which arguments, where and for how long. No I/O.

mode       where it runs                                what ends it at its timeout, a lost lease or a stop
async      in the worker's event loop (coroutines)      it is cancelled
thread     in a thread (the rule for plain functions)   nothing can: its outcome is dropped, its lease let go
process    in a child process                           the process is killed and replaced
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ..client.results import Held
from ..client.times import Duration, duration_ms
from .bodies import Reader, reader_of
from .context import Context
from .outcomes import UnfitBody

Mode = Literal["async", "thread", "process"]
MODES = ("async", "thread", "process")


class Home(msgspec.Struct, frozen=True):
    """Where a child process finds a handler again."""

    module: str
    qualname: str


class Handler(msgspec.Struct, frozen=True):
    """One handler of one topic. `places`: how many of its topic run at a time; None: those of its mode."""

    topic: str
    name: str
    call: Callable[..., Any]
    mode: Mode
    home: Home
    read: Reader | None
    wants_context: bool
    timeout_s: float | None = None
    places: int | None = None

    def arguments(self, job: Held, context: Context) -> tuple[Any, ...]:
        """What it is called with. Raises UnfitBody; what else a type's own checks raise is a failure of the handler."""
        try:
            given = () if self.read is None else (self.read(job),)
        except (ValueError, RecursionError) as wrong:  # what msgspec and pydantic raise is a ValueError
            raise UnfitBody(f"the body is not what {self.name} asks for: {wrong}") from None
        return (*given, context) if self.wants_context else given


def handler_of(
    topic: str,
    call: Callable[..., Any],
    home: Home,
    mode: Mode | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
) -> Handler:
    """Look at a function, method or callable object. Raises TypeError or ValueError that names it."""
    name = f"{home.module}.{home.qualname}"
    if not topic:
        raise ValueError(f"{name}: name the topic")
    is_coroutine = inspect.iscoroutinefunction(call)
    mode = mode or ("async" if is_coroutine else "thread")
    if mode not in MODES:
        raise ValueError(f'{name}: mode is "async", "thread" or "process", not {mode!r}')
    if mode == "async" and not is_coroutine:
        raise ValueError(f'{name} is not a coroutine: it would stop the event loop; use mode="thread" or "process"')
    if mode == "process" and "<locals>" in home.qualname:
        raise ValueError(f"{name}: a child process can find only what stands at the top of a module or class")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"{name}: concurrency is at least 1")
    read, wants_context = _parameters(call, name)
    timeout_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
    return Handler(topic, name, call, mode, home, read, wants_context, timeout_s, concurrency)


def _parameters(call: Callable[..., Any], name: str) -> tuple[Reader | None, bool]:
    """How to read the body, if it is wanted, and whether the context is."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    own = [one for one in parameters if one.kind in kinds]
    keyword = inspect.Parameter.KEYWORD_ONLY
    if len(own) > 2 and any(one.default is inspect.Parameter.empty for one in own[2:]):
        raise TypeError(f"{name}: a handler takes the body and a Context, not {len(own)} arguments")
    if any(one.kind is keyword and one.default is inspect.Parameter.empty for one in parameters):
        raise TypeError(f"{name}: a handler is called with the body and a Context, without keywords")
    hints = _hints(call, name)
    types = [hints.get(one.name, Any) for one in own]
    if types[:1] == [Context]:
        return None, True
    if len(types) > 1 and types[1] not in (Context, Any):
        own = own[:1] if own[1].default is not inspect.Parameter.empty else own
        if len(own) > 1:
            raise TypeError(f"{name}: the second parameter is the Context, not {types[1]!r}")
    wants_context = len(own) > 1 and (types[1] is Context or own[1].default is inspect.Parameter.empty)
    return (reader_of(types[0], name) if own else None), wants_context


def _hints(call: Callable[..., Any], name: str) -> dict[str, Any]:
    target = call if inspect.isroutine(call) else type(call).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as unknown:
        raise TypeError(f"{name}: the type of a parameter cannot be found: {unknown}") from None
