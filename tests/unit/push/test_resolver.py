"""Look-ups by the system, without a name server: what the hosts file knows, and look-ups that hang."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from dueline.push.resolver import ForAiohttp, SystemNames

HANGS = """
import asyncio, socket, time
socket.getaddrinfo = lambda *a, **k: time.sleep(3600)
from dueline.push.resolver import SystemNames

async def main():
    task = asyncio.create_task(SystemNames().addresses("hangs.example"))
    await asyncio.sleep(0)
    task.cancel()

asyncio.run(main())
"""


def test_localhost_is_known_to_every_system() -> None:
    addresses = asyncio.run(SystemNames().addresses("localhost"))
    assert set(addresses) <= {"127.0.0.1", "::1"}
    assert addresses


def test_a_look_up_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "hangs.example":
            free.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def run() -> tuple[list[str], list[list[str]]]:
        names = SystemNames()
        hanging = [asyncio.create_task(names.addresses("hangs.example")) for _ in range(20)]
        await asyncio.sleep(0)  # all of them have begun
        try:
            other = list(await asyncio.wait_for(names.addresses("other.example"), 20))
        finally:
            free.set()
        return other, [list(found) for found in await asyncio.gather(*hanging)]

    assert asyncio.run(run()) == (["192.0.2.1"], [["192.0.2.1"]] * 20)


def test_the_process_can_end_while_a_look_up_hangs() -> None:
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=60)


def test_a_failure_is_an_os_error_whatever_the_name_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        raise UnicodeError("label too long") if host == "odd" else socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for host in ("odd", "none.example"):
        with pytest.raises(OSError):
            asyncio.run(SystemNames().addresses(host))


def test_a_name_without_addresses_is_a_failure_too() -> None:
    class Nothing:
        async def addresses(self, host: str) -> list[str]:
            return []

        async def stop(self) -> None: ...

    async def run() -> None:
        with pytest.raises(OSError):
            await ForAiohttp(Nothing()).resolve("empty.example", 80)

    asyncio.run(run())
