"""A client of an API in this process: the same methods, errors and retries as over HTTP, without a connection."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..api.reply import Reply
from .async_client import AsyncClient
from .calls import Answer, Call, read_reply
from .errors import DuelineApiError
from .patience import Patience
from .retrying import tried_again

T = TypeVar("T")

Ask = Callable[[Call[Any]], Awaitable[Reply]]


class InProcessClient(AsyncClient):
    """An AsyncClient whose calls are answered by `ask`. Its owner starts and stops what answers."""

    def __init__(self, ask: Ask, patience: Patience = Patience()) -> None:
        self._ask = ask
        self._patience = patience

    @property
    def url(self) -> str:
        return ""

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""

    async def _answer(self, call: Call[T]) -> Answer[T]:
        begin_s = get_running_loop().time()
        try:
            return read_reply(call, await self._ask(call))
        except DuelineApiError as error:
            return await tried_again(error, begin_s, self._once, call, self._patience)

    async def _once(self, call: Call[T], _: float) -> Answer[T]:
        return read_reply(call, await self._ask(call))
