"""One bit of a stored job is turned: every page that shows it stays valid, and no consumer gets it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kit.async_tests import one_loop
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess

from .kit import ServersKit, short_folder

# What is sent, the stored bytes that are harmed, the bits that are turned in their first byte.
HARMS: dict[str, tuple[dict[str, Any], bytes, int]] = {
    "a quote of JSON": ({"body": {"harm-a": "ed"}}, b'"harm-a"', 0x01),
    "not UTF-8": ({"body": {"a": "harm-b"}}, b"harm-b", 0x80),
    "text": ({"body": "a harm-c text"}, b"harm-c", 0x80),
    "bytes": ({"body_base64": base64.b64encode(b"\0harm-d").decode()}, b"harm-d", 0x01),
    "tags": ({"body": 1, "tags": ["harm-e"]}, b"harm-e\x31", 0x80),
}
WITH_HEADERS = ({"body": 1, "headers": {"X-Harm": "v"}}, b'"X-Harm"', 0x01)


def jobs_of(number: int) -> str:
    return f"/v1/topics/t{number}/jobs"


def harm(data: Path, needle: bytes, bits: int) -> None:
    [file] = (data / "appendonlydir").glob("*.incr.aof")
    raw = bytearray(file.read_bytes())
    at = raw.index(needle)
    raw[at] ^= bits
    file.write_bytes(raw)


loop_runner = one_loop  # the tests share servers


@pytest.fixture(scope="module")
def kit(loop_runner: asyncio.Runner) -> Iterator[ServersKit]:
    """A server with a topic for each harm: a bit of its job `bad` is turned, its job `good` is as it was."""
    with short_folder() as folder:
        server = ServerProcess(folder / "data")

        async def start() -> None:
            await server.start()
            http = Connection(*server.address)
            harms = [*HARMS.values(), WITH_HEADERS]
            for number, (sent, _, _) in enumerate(harms):
                for job in ({"id": "bad", **sent}, {"id": "good", "body": "unharmed"}):
                    assert (await http.request("POST", jobs_of(number), msgspec.json.encode(job))).status == 201
            http.close()
            await server.stop()
            for _, needle, bits in harms:
                harm(server.data, needle, bits)
            await server.start()

        try:
            loop_runner.run(start())
            yield ServersKit([server])
        finally:
            loop_runner.run(server.kill())


@pytest.mark.parametrize("name", HARMS)
async def test_a_job_with_a_turned_bit_is_shown_in_valid_answers_and_not_delivered(kit: ServersKit, name: str) -> None:
    jobs = jobs_of([*HARMS].index(name))

    http = Connection(*kit.servers[0].address)

    async def read(path: str) -> Any:
        answer = await http.request("GET", path)
        assert answer.status == 200, answer.body
        return msgspec.json.decode(answer.body)  # raises when it is not JSON or not UTF-8

    def shown(job: dict[str, Any]) -> bytes:
        """A body that is not what was sent is bytes, whatever it was."""
        assert "body" not in job
        return base64.b64decode(job["body_base64"], validate=True)

    shown(await read(f"{jobs}/bad"))  # nobody has noticed it yet
    assert {job["id"] for job in (await read(f"{jobs}?body=1"))["jobs"]} == {"bad", "good"}
    pulled = await http.request("POST", jobs.replace("/jobs", "/pull"), b'{"max":10}')
    assert [(job["id"], job["body"]) for job in pulled.json()["jobs"]] == [("good", "unharmed")]
    [dead] = (await read(jobs.replace("/jobs", "/dead")))["jobs"]
    assert (dead["id"], dead["reason"]) == ("bad", "corrupt")
    shown(dead)
    shown(await read(f"{jobs}/bad"))
    http.close()


async def test_headers_with_a_turned_bit_are_left_out_of_answers_that_stay_valid(kit: ServersKit) -> None:
    """No checksum covers headers, so the job itself goes on."""
    jobs = jobs_of(len(HARMS))

    http = Connection(*kit.servers[0].address)
    shown = (await http.request("GET", f"{jobs}/bad")).json()
    pulled = (await http.request("POST", jobs.replace("/jobs", "/pull"), b'{"max":10}')).json()["jobs"]
    [bad] = [job for job in pulled if job["id"] == "bad"]
    assert [(one["body"], one["headers"]) for one in (shown, bad)] == [(1, {})] * 2
    http.close()
