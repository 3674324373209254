"""One bit of a stored job is turned: every page that shows it stays valid, and no consumer gets it."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tools.faults.connection import Connection

from .kit import serving

JOBS = "/v1/topics/t/jobs"
# What is sent, the stored bytes that are harmed, the bits that are turned in their first byte.
HARMS: dict[str, tuple[dict[str, Any], bytes, int]] = {
    "a quote of JSON": ({"body": {"harm": "ed"}}, b'"harm"', 0x01),
    "not UTF-8": ({"body": {"a": "harm"}}, b"harm", 0x80),
    "text": ({"body": "a harmed text"}, b"harmed", 0x80),
    "bytes": ({"body_base64": base64.b64encode(b"\0harmed").decode()}, b"harmed", 0x01),
    "tags": ({"body": 1, "tags": ["harm"]}, b"harm\x31", 0x80),
}


def harm(data: Path, needle: bytes, bits: int) -> None:
    [file] = (data / "appendonlydir").glob("*.incr.aof")
    raw = bytearray(file.read_bytes())
    at = raw.index(needle)
    raw[at] ^= bits
    file.write_bytes(raw)


@pytest.mark.parametrize("name", HARMS)
def test_a_job_with_a_turned_bit_is_shown_in_valid_answers_and_not_delivered(folder: Path, name: str) -> None:
    sent, needle, bits = HARMS[name]

    async def run() -> None:
        data = folder / "data"
        async with serving(data) as server:
            http = Connection(*server.address)
            for job in ({"id": "bad", **sent}, {"id": "good", "body": "unharmed"}):
                assert (await http.request("POST", JOBS, msgspec.json.encode(job))).status == 201
            http.close()
            await server.stop()
            harm(data, needle, bits)
            await server.start()
            http = Connection(*server.address)

            async def read(path: str) -> Any:
                answer = await http.request("GET", path)
                assert answer.status == 200, answer.body
                return msgspec.json.decode(answer.body)  # raises when it is not JSON or not UTF-8

            def shown(job: dict[str, Any]) -> bytes:
                """A body that is not what was sent is bytes, whatever it was."""
                assert "body" not in job
                return base64.b64decode(job["body_base64"], validate=True)

            shown(await read(f"{JOBS}/bad"))  # nobody has noticed it yet
            assert {job["id"] for job in (await read(f"{JOBS}?body=1"))["jobs"]} == {"bad", "good"}
            pulled = await http.request("POST", "/v1/topics/t/pull", b'{"max":10}')
            assert [(job["id"], job["body"]) for job in pulled.json()["jobs"]] == [("good", "unharmed")]
            [dead] = (await read("/v1/topics/t/dead"))["jobs"]
            assert (dead["id"], dead["reason"]) == ("bad", "corrupt")
            shown(dead)
            shown(await read(f"{JOBS}/bad"))
            http.close()

    asyncio.run(run())


def test_headers_with_a_turned_bit_are_left_out_of_answers_that_stay_valid(folder: Path) -> None:
    """No checksum covers headers, so the job itself goes on."""

    async def run() -> None:
        data = folder / "data"
        async with serving(data) as server:
            http = Connection(*server.address)
            job = {"id": "a", "body": 1, "headers": {"X-Harm": "v"}}
            assert (await http.request("POST", JOBS, msgspec.json.encode(job))).status == 201
            http.close()
            await server.stop()
            harm(data, b'"X-Harm"', 0x01)
            await server.start()
            http = Connection(*server.address)
            shown = (await http.request("GET", f"{JOBS}/a")).json()
            [pulled] = (await http.request("POST", "/v1/topics/t/pull", b'{"max":10}')).json()["jobs"]
            assert [(one["body"], one["headers"]) for one in (shown, pulled)] == [(1, {})] * 2
            http.close()

    asyncio.run(run())
