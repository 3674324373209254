"""What a handler of the native API replies: an answer, or why it was refused. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from .answers import ErrorAnswer, Refusal

to_json = msgspec.json.Encoder().encode


class Reply(msgspec.Struct):
    """`value` is the answer (`answers`). `error`: the call was refused; if `value` is set too, it holds the result of
    each item. `undelivered` is called once, in the event loop, if the reply could not be delivered to the caller."""

    value: Any = None
    status: int = 200
    undelivered: Callable[[], None] | None = None
    error: Refusal | None = None
    id: str | UnsetType | None = UNSET  # of the job, if the outcome is unknown
    version: int | UnsetType = UNSET  # the current one, if the call asked for another
    retry_after_s: int | None = None

    @property
    def json(self) -> bytes:
        """The reply as HTTP sends it."""
        if self.error is None:
            return to_json(self.value)
        if self.value is None:
            return to_json(ErrorAnswer(self.error, self.id, self.version))
        return to_json({"error": self.error, "results": self.value.results})
