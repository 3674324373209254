"""Look-ups by the system, without a name server: what the hosts file knows, and look-ups that hang."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from dueline.push.resolver import NameCache, SystemNames
from tests.kit.waiting import turns

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


async def test_localhost_is_known_to_every_system() -> None:
    addresses = await SystemNames().addresses("localhost")
    assert set(addresses) <= {"127.0.0.1", "::1"}
    assert addresses


async def test_a_look_up_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "hangs.example":
            free.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    names = SystemNames()
    hanging = [asyncio.create_task(names.addresses("hangs.example")) for _ in range(20)]
    await turns()  # all of them have begun
    try:
        other = list(await asyncio.wait_for(names.addresses("other.example"), 20))
    finally:
        free.set()
    assert (other, [list(found) for found in await asyncio.gather(*hanging)]) == (["192.0.2.1"], [["192.0.2.1"]] * 20)


class HangingSystem:
    """In the place of the system: names that begin with "hangs" hang until `free` is set, all others answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.failing = False
        self.asked: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("hangs"):
            self.free.wait()
        if self.failing:
            raise socket.gaierror(socket.EAI_AGAIN, "stub: again")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]


async def answered(names: SystemNames, host: str) -> list[str]:
    return list(await asyncio.wait_for(names.addresses(host), 20))


async def test_look_ups_of_one_name_are_one_and_take_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    system = HangingSystem(monkeypatch)

    names = SystemNames(max_threads=2, reserved=0)
    hanging = [asyncio.create_task(names.addresses("hangs.example")) for _ in range(50)]
    await turns()
    hanging.pop().cancel()  # one who goes away does not end it for the others
    assert await answered(names, "other.example") == ["192.0.2.1"]
    system.free.set()
    assert await asyncio.gather(*hanging) == [["192.0.2.1"]] * 49
    assert await answered(names, "hangs.example") == ["192.0.2.1"]
    assert sorted(system.asked) == ["hangs.example", "hangs.example", "other.example"]


async def test_many_names_that_hang_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is a name that nobody asked for before, the second one that answered before all threads were taken."""
    system = HangingSystem(monkeypatch)

    names = SystemNames()
    assert await answered(names, "known.example") == ["192.0.2.1"]
    hanging = [asyncio.create_task(names.addresses(f"hangs{n}.example")) for n in range(100)]
    await turns()
    assert await answered(names, "new.example") == ["192.0.2.1"]
    hanging += [asyncio.create_task(names.addresses(f"hangs{n}.example")) for n in range(100, 300)]
    await turns()
    late = asyncio.create_task(names.addresses("late.example"))
    assert await answered(names, "known.example") == ["192.0.2.1"]
    assert "late.example" not in system.asked, "there is no thread for it: this test would show nothing"
    system.free.set()
    assert await asyncio.gather(late, *hanging) == [["192.0.2.1"]] * 301


async def test_a_name_that_failed_last_time_has_no_reserved_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    system = HangingSystem(monkeypatch)

    names = SystemNames(max_threads=1, reserved=1)
    assert await answered(names, "name.example") == ["192.0.2.1"]
    system.failing = True
    with pytest.raises(OSError):
        await answered(names, "name.example")
    system.failing = False
    hanging = asyncio.create_task(names.addresses("hangs.example"))
    await turns()
    waiting = asyncio.create_task(names.addresses("name.example"))
    await asyncio.wait([waiting], timeout=0.2)
    assert not waiting.done()
    system.free.set()
    assert await asyncio.gather(waiting, hanging) == [["192.0.2.1"]] * 2


async def test_a_name_that_nobody_waits_for_any_more_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    system = HangingSystem(monkeypatch)

    names = SystemNames(max_threads=1, reserved=0)
    hanging = asyncio.create_task(names.addresses("hangs.example"))
    left = asyncio.create_task(names.addresses("left.example"))
    last = asyncio.create_task(names.addresses("last.example"))
    await turns()
    left.cancel()
    await turns()
    system.free.set()
    assert await asyncio.gather(hanging, last) == [["192.0.2.1"]] * 2
    assert system.asked == ["hangs.example", "last.example"]


async def test_a_system_without_threads_fails_the_look_up_and_not_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    HangingSystem(monkeypatch)
    start = threading.Thread.start

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    names = SystemNames(max_threads=1, reserved=0)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OSError):
        await answered(names, "a.example")
    monkeypatch.setattr(threading.Thread, "start", start)
    assert await answered(names, "a.example") == ["192.0.2.1"]


def test_the_process_can_end_while_a_look_up_hangs() -> None:
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=60)


async def test_a_failure_is_an_os_error_whatever_the_name_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        raise UnicodeError("label too long") if host == "odd" else socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for host in ("odd", "none.example"):
        with pytest.raises(OSError):
            await SystemNames().addresses(host)


async def test_a_name_without_addresses_is_a_failure_too() -> None:
    class Nothing:
        async def addresses(self, host: str) -> list[str]:
            return []

        async def stop(self) -> None: ...

    with pytest.raises(OSError):
        await NameCache(Nothing()).addresses("empty.example", lambda: None)


async def test_calls_that_need_the_same_name_share_a_look_up_and_a_caller_that_leaves_does_not_end_it() -> None:
    asked, answers, admitted = asyncio.Event(), asyncio.Event(), []

    class Slow:
        async def addresses(self, host: str) -> list[str]:
            asked.set()
            await answers.wait()
            return ["127.0.0.1"]

        async def stop(self) -> None: ...

    names = NameCache(Slow())
    first, second = (
        asyncio.ensure_future(names.addresses("one.example", lambda: admitted.append(1))) for _ in range(2)
    )
    await asked.wait()
    first.cancel()
    answers.set()
    assert await second == ["127.0.0.1"]
    assert admitted == [1]
