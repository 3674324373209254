"""One definition of a method for both clients. No I/O.

A method of the API is written once, in `api`, as a function that returns a plan:

    Call[T]                         one request whose answer is the result
    Steps[T]                        a generator: it yields calls, gets their values back and returns the result
    Pages[T]                        a list that comes in pages

`@method` and `@pages` bind the plan to the client. On a Client, the method executes it and returns T (or an iterator).
On an AsyncClient, it returns a coroutine of T (or an async iterator). Type checkers see the original arguments.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from types import MethodType
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
    """A paged list: how to call for the page at a cursor (None: the first page), and how to get the rows of a page."""

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
        return self._plan if client is None else MethodType(self, client)

    def __call__(self, client: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> Any:
        return client.do(self._plan(client, *args, **kwargs))


class pages(Generic[P, T]):
    """A method that iterates over all pages of a list. Each page is fetched when its first row is needed."""

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
        return self._plan if client is None else MethodType(self, client)

    def __call__(self, client: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> Any:
        return client.walk(self._plan(client, *args, **kwargs))
