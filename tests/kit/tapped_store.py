"""A store whose calls a test can hold up, change or lose on their way."""

from __future__ import annotations

from typing import Any

from dueline.engine.completion import Done, leave
from dueline.store.valkey.link import Link
from dueline.store.valkey.store import ValkeyStore


class TappedLink(Link):
    """A link whose `call` a test may replace; `through` is the way to the store."""

    def __init__(self, url: str, reply_timeout_s: float) -> None:
        super().__init__(url, reply_timeout_s)
        self.through = super().call

    def post(self, key: str, args: tuple[Any, ...], on_reply: Done) -> bool:
        leave(self.call(key, *args), on_reply)
        return True


class TappedStore(ValkeyStore):
    """`store.link.call = ...` replaces what a call does."""

    def __init__(self, url: str, *, reply_timeout_s: float = 2.5, **options: Any) -> None:
        self.link = TappedLink(url, reply_timeout_s)
        super().__init__(url, link=self.link, reply_timeout_s=reply_timeout_s, **options)
