"""One definition of a method for both clients. No I/O.

A method of the API is written once, in `api`, as a function that builds what has to be done:

    Call[T]                         one request whose answer is the result
    Steps[T]                        a generator: it yields calls, gets their values back and returns the result
    Pages[T]                        a list that comes in pages

`@method` and `@pages` bind that to the client they are looked up on. On a Client the method does it and returns T; on
an AsyncClient it returns a coroutine of T (an iterator, an async iterator). Arguments and their types are kept.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import msgspec

from .calls import Call

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .client import Client

P = ParamSpec("P")
T = TypeVar("T")

Steps = Generator[Call[Any], Any, T]
Plan = Call[T] | Steps[T]


class Pages(msgspec.Struct, Generic[T], frozen=True):
    """A list in pages: the call for the page at a cursor (None: the first), and the rows of a page."""

    at: Callable[[str | None], Call[Any]]
    rows: Callable[[Any], Sequence[T]]


class method(Generic[P, T]):
    """A method that is one call, or steps of calls."""

    def __init__(self, plan: Callable[Concatenate[Any, P], Plan[T]]) -> None:
        self._plan = plan
        functools.update_wrapper(self, plan)  # pyright: ignore[reportArgumentType]

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Plan[T]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Callable[..., Any]:
        if client is None:
            return self._plan
        do, plan = client.do, self._plan

        @functools.wraps(plan)
        def bound(*args: P.args, **kwargs: P.kwargs) -> Any:
            return do(plan(client, *args, **kwargs))

        return bound


class pages(Generic[P, T]):
    """A method that walks over all pages of a list. Each page is asked for when its first row is wanted."""

    def __init__(self, plan: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self._plan = plan
        functools.update_wrapper(self, plan)  # pyright: ignore[reportArgumentType]

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Pages[T]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Callable[..., Any]:
        if client is None:
            return self._plan
        walk, plan = client.walk, self._plan

        @functools.wraps(plan)
        def bound(*args: P.args, **kwargs: P.kwargs) -> Any:
            return walk(plan(client, *args, **kwargs))

        return bound
