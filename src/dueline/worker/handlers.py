"""A handler as data: what to call for a job of a topic, with which arguments, where and for how long. No I/O.

mode       where it runs                                at its timeout, a lost lease or the end of a stop
async      in the worker's event loop (coroutines)      it is cancelled
thread     in a thread (default for plain functions)    it runs on: its outcome is dropped, its lease not renewed
process    in a child process                           the process is killed and replaced
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ..api.answers import LeasedJob
from ..client.times import Duration, duration_ms
from .bodies import Reader, fields_reader, reader_of
from .context import Context
from .outcomes import UnfitBody

Mode = Literal["async", "thread", "process"]
MODES = ("async", "thread", "process")


class HandlerLocation(msgspec.Struct, frozen=True):
    """The module and name by which a child process finds a handler."""

    module: str
    qualname: str


class Handler(msgspec.Struct, frozen=True):
    """One handler of one topic. `read`: decodes the body; None: the handler does not take it. `context`: the parameter
    that takes the Context. `by_name`: its parameters are fields of the body. `places`: how many jobs of its topic run
    at a time; None: its mode's limit applies."""

    topic: str
    name: str
    call: Callable[..., Any]
    mode: Mode
    location: HandlerLocation
    read: Reader | None
    context: str | None
    by_name: bool
    timeout_s: float | None = None
    places: int | None = None

    def invoke(self, job: LeasedJob, context: Context) -> Any:
        """Call the handler; a coroutine function returns a coroutine. Raises UnfitBody and what the handler raises."""
        args, fields = self.arguments(job, context)
        return self.call(*args, **fields)

    def arguments(self, job: LeasedJob, context: Context) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments of the call. Raises UnfitBody. Other exceptions from a type's own checks
        count as failures of the handler."""
        try:
            given: tuple[Any, ...] = () if self.read is None else (self.read(job),)
        except (ValueError, RecursionError) as wrong:  # msgspec and pydantic raise ValueErrors
            raise UnfitBody(f"the body is not what {self.name} asks for: {wrong}") from None
        if self.by_name:
            return (), given[0] if self.context is None else {**given[0], self.context: context}
        return given if self.context is None else (*given, context), {}


def handler_of(
    topic: str,
    call: Callable[..., Any],
    location: HandlerLocation,
    mode: Mode | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
) -> Handler:
    """The handler for a function, method or callable object. Raises TypeError or ValueError that names it."""
    name = f"{location.module}.{location.qualname}"
    if not topic:
        raise ValueError(f"{name}: name the topic")
    is_coroutine = inspect.iscoroutinefunction(call)
    mode = mode or ("async" if is_coroutine else "thread")
    if mode not in MODES:
        raise ValueError(f'{name}: mode is "async", "thread" or "process", not {mode!r}')
    if mode == "async" and not is_coroutine:
        raise ValueError(f'{name} is not a coroutine: it would stop the event loop; use mode="thread" or "process"')
    if mode == "process" and "<locals>" in location.qualname:
        raise ValueError(f"{name}: a child process can find only what a module or class defines at its top level")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"{name}: concurrency must be at least 1")
    read, context, by_name = _parameters(call, name)
    timeout_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
    return Handler(topic, name, call, mode, location, read, context, by_name, timeout_s, concurrency)


def _parameters(call: Callable[..., Any], name: str) -> tuple[Reader | None, str | None, bool]:
    """How to decode the body, if the handler takes it; the parameter for the Context, if there is one; and whether the
    other parameters take fields of the body, because there are several. Raises TypeError."""
    parameters = inspect.signature(call).parameters.values()
    own = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
        raise TypeError(f"{name}: keyword-only parameters of a handler need a default")
    hints = _hints(call, name)
    contexts = [one.name for one in own if hints.get(one.name) is Context]
    if not contexts and len(own) == 2 and own[1].name not in hints and own[1].default is inspect.Parameter.empty:
        contexts = [own[1].name]
    if len(contexts) > 1:
        raise TypeError(f"{name}: only one parameter may be the Context, not {len(contexts)}")
    context = contexts[0] if contexts else None
    others = [one for one in own if one.name != context]
    if len(others) > 1:
        if any(one.kind is one.POSITIONAL_ONLY for one in own):
            raise TypeError(f"{name}: fields of the body are passed by name, not to positional-only parameters")
        types = {one.name: hints.get(one.name, Any) for one in others}
        optional = {one.name for one in others if one.default is not one.empty}
        return fields_reader(types, optional, name), context, True
    if others and own[0].name == context:
        raise TypeError(f"{name}: the first parameter must be the body, the second the Context")
    return (reader_of(hints.get(others[0].name, Any), name) if others else None), context, False


def _hints(call: Callable[..., Any], name: str) -> dict[str, Any]:
    target = call if inspect.isroutine(call) else type(call).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as unknown:
        raise TypeError(f"{name}: the type of a parameter cannot be found: {unknown}") from None
