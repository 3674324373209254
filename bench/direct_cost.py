"""What a direct send costs this process: instructions per send of `DirectQueue`, counted by valgrind's callgrind.

    python -m bench.direct_cost [--product CHECKOUT ...] [--sends N] [--json]

Each product is a checkout with a `.venv` (`make dev`), measured on an embedded store of its own. The first is what the
others are compared with. Without one, this checkout is measured. An instruction count hardly depends on the load of the
machine. It includes the client, the engine, the store's client and the event loop, not the store and not the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import checkouts

AT_ONCE = 64
BODY = {"order": 7, "note": "x" * 80}
FORMS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "one at a time": (1, {}),
    "one at a time, with delay": (1, {"delay": 60_000}),
    f"{AT_ONCE} at once": (AT_ONCE, {}),
    f"{AT_ONCE} at once, with delay": (AT_ONCE, {"delay": 60_000}),
}
TIMEOUT_S = 60.0


async def work(url: str, sends: int) -> None:
    """Send, and wait for a line before and after each form."""
    from dueline.worker.direct import DirectQueue

    queue = DirectQueue(url)
    await queue.start()

    async def send(at_once: int, options: dict[str, Any]) -> None:
        if at_once == 1:
            await queue.send("bench", BODY, **options)
        else:
            await asyncio.gather(*(queue.send("bench", BODY, **options) for _ in range(at_once)))

    for at_once, options in FORMS.values():
        for _ in range(AT_ONCE * 2 // at_once):
            await send(at_once, options)
        pause()
        for _ in range(sends // at_once):
            await send(at_once, options)
        pause()
    await queue.close()


def pause() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def counted(product: str, sends: int) -> dict[str, int]:
    """The instructions of a send in each form."""
    from dueline.store.valkey.embedded import EmbeddedStore

    from .instructions import Counter
    from .servers import dueline, dueline_path

    async def store_of(folder: Path) -> EmbeddedStore:
        store = EmbeddedStore(folder / "data")
        await store.start()
        return store

    with tempfile.TemporaryDirectory(prefix="dueline-direct-cost-") as name, asyncio.Runner() as runner:
        folder = Path(name)
        store = runner.run(store_of(folder))
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts.%p", f"--log-file={folder}/log"]
        command = [dueline(product)[0], "-m", "bench.direct_cost", "--work", store.url, "--sends", str(sends)]
        env = {**os.environ, **dueline_path(product), "PYTHONHASHSEED": "0"}
        child = subprocess.Popen([*tool, *command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None
        assert child.stdout is not None
        counter, counts = Counter(folder, child.pid), dict[str, int]()
        try:
            for form, (at_once, _) in FORMS.items():
                for is_end in (False, True):
                    if child.stdout.readline() != "ready\n":
                        raise SystemExit(f"the sends of {product or 'this checkout'} failed")
                    counts[form] = counter.count() // (sends // at_once * at_once)
                    if not is_end:
                        counts[form] = 0
                    child.stdin.write("\n")
                    child.stdin.flush()
            child.wait(TIMEOUT_S)
        finally:
            child.kill()
            child.wait()
            runner.run(store.stop())
    return counts


def main() -> int:
    parser = checkouts.parser("bench.direct_cost", __doc__)
    parser.add_argument("--sends", type=int, default=640, help="sends per form (default %(default)s)")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work is not None:
        asyncio.run(work(asked.work, asked.sends))
        return 0
    if not checkouts.has_valgrind():
        return 1
    products: list[str] = asked.product or [""]
    checkouts.show({product: counted(product, asked.sends) for product in products}, "the sending process", asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
