"""A program whose child processes take their time to start, as those do that import half the world.

`python -m tests.integration.starting_app`. Every child imports this file again (spawn), under another name. The
variables say how long that takes: GATE names a FIFO, until the test opens its other side and closes it; else START_S.
"""

from __future__ import annotations

import os
import time

from dueline.worker import Worker, runner

if __name__ == "__mp_main__":
    if "GATE" in os.environ:
        with open(os.environ["GATE"]) as gate:
            gate.read()
    else:
        time.sleep(float(os.environ["START_S"]))

worker = Worker(os.environ["APP_URL"], processes=1, namespace="app", grace=os.environ.get("GRACE", "20s"))
runner.CHILD_START_S = float(os.environ.get("CHILD_START_S", runner.CHILD_START_S))


@worker.handles("big", mode="process", timeout="2s")
def big(body: bytes) -> None:
    worker.do(lambda queue: queue.send("reports", {"bytes": len(body)}), "ado")


@worker.handles("small")
async def small(n: int) -> None:
    await worker.ado(lambda queue: queue.send("reports", {"n": n}))


if __name__ == "__main__":
    worker.run()
