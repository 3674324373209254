"""What one call costs this process: CPU per call of the link, with 64 calls at once.

    python -m bench.link_cost STORE_URL [--replicated] [--calls N]

Every call runs a script that does nothing, with arguments and a reply as large as those of a send. To compare two
versions, set PYTHONPATH to their `src` in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import resource
import time

import uvloop

from dueline.store.valkey.link import Link
from dueline.store.valkey.witness import Replication

AT_ONCE = 64
SCRIPT = "redis.call('SET', KEYS[1], '') return { 0, 1, 0, 0, 'abc', '' }"
SHA = hashlib.sha1(SCRIPT.encode()).hexdigest()
ARGUMENTS = ("", "1800000000000:1000", "caller", b"12345678", b"n" * 20, b"b" * 100)


async def measure(url: str, calls: int, replicated: bool) -> tuple[float, float]:
    """CPU microseconds per call, calls per second."""
    link = Link(url, replication=Replication() if replicated else None)
    await link.start()
    keys = [f"bench:{{{number}}}:m" for number in range(AT_ONCE)]
    for key in keys:
        await link.change(key, "EVAL", SCRIPT, 1, key)
    left = calls

    async def caller(key: str) -> None:
        nonlocal left
        send = link.change if replicated else link.call
        while left > 0:
            left -= 1
            await send(key, "EVALSHA", SHA, 1, key, *ARGUMENTS)

    began, began_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    await asyncio.gather(*map(caller, keys))
    ended, ended_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for key in keys:
        await link.call(key, "DEL", key)
    await link.stop()
    cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    return cpu_s / calls * 1e6, calls / (ended_s - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("url")
    parser.add_argument("--replicated", action="store_true")
    parser.add_argument("--calls", type=int, default=20_000)
    options = parser.parse_args()
    cpu_us, rate = uvloop.run(measure(options.url, options.calls, options.replicated))
    print(f"{cpu_us:.1f} us CPU per call, {rate:,.0f} calls/s")


if __name__ == "__main__":
    main()
