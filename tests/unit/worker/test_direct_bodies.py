"""Bodies that are sent without a server are as good as those that a server takes."""

from __future__ import annotations

import pytest
from msgspec import Raw

from dueline.client.errors import InvalidRequest

from .kit import worker_kit

BRACKETS_IN_A_TEXT = Raw(b'["' + b"[" * 1000 + b'"]')


def nested(depth: int) -> Raw:
    return Raw(b'{"a":[' * (depth // 2) + b"[" * (depth % 2) + b"]" * (depth % 2) + b"]}" * (depth // 2))


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (Raw(b""), "bad_json", "The body is not valid JSON: "),
        (Raw(b"{"), "bad_json", "The body is not valid JSON: "),
        (Raw(b"1,2"), "bad_json", "The body is not valid JSON: "),
        (Raw(b'"\xff"'), "bad_json", "The body is not UTF-8 "),
        (Raw(b"1e999"), "invalid_field", "cannot be parsed as JSON by every reader: "),
        (nested(65), "invalid_field", "is nested deeper than 64"),
        (nested(100_000), "bad_json", "The body is nested deeper than 64."),
    ],
)
async def test_what_is_not_json_for_every_reader_is_refused_and_nothing_is_stored(
    body: Raw, code: str, message: str
) -> None:
    async with worker_kit() as kit:
        for merge in (None, "group"):
            with pytest.raises(InvalidRequest) as refused:
                await kit.queue.send("t", body, merge=merge)
            assert (refused.value.code, refused.value.status) == (code, 400)
            assert refused.value.message.startswith(message)
        assert await kit.queue.pull(["t"], 10) == ()


@pytest.mark.parametrize("body", [nested(64), nested(63), BRACKETS_IN_A_TEXT, Raw(b"[" + b"[]," * 99 + b"[]]")])
async def test_json_that_a_server_takes_is_kept_byte_for_byte(body: Raw) -> None:
    async with worker_kit() as kit:
        await kit.queue.send("t", body, id="a")
        assert bytes((await kit.queue.get("t", "a")).body) == bytes(body)
