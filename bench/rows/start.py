"""How long a command takes: `dueline --version`, `dueline send`, and `dueline serve` with an existing data folder until
it is ready."""

from __future__ import annotations

import os
import subprocess
import time

from ..broken import Broken
from ..report import Line, at_most, middle
from ..servers import READY_S, Server, dueline, dueline_path, folder
from ..sizes import Sizes

LOOK_S = 0.002


def start(sizes: Sizes) -> list[Line]:
    with folder() as place:
        one = Server(place / "data")
        try:
            one.start()
            url = f"http://127.0.0.1:{one.port}"
            commands = {"--version": ("--version",), "send": ("send", "start", "hello", "--url", url)}
            spent_s = {name: [_run_s(*words) for _ in range(sizes.starts)] for name, words in commands.items()}
            one.stop()
            ready_s = [_ready_s(one) for _ in range(sizes.starts)]
        finally:
            one.stop()
    found = [(f"dueline {name}", times, 0.25) for name, times in spent_s.items()]
    found.append(("dueline serve with a data folder, until ready", ready_s, 0.5))
    note = f"median of {sizes.starts}"
    return [
        Line(what, middle(times), "s", None, at_most(target), note, {"seconds": times}) for what, times, target in found
    ]


def _run_s(*words: str) -> float:
    begun_s = time.perf_counter()
    done = subprocess.run(
        (*dueline(), *words), capture_output=True, text=True, check=False, env={**os.environ, **dueline_path()}
    )
    spent_s = time.perf_counter() - begun_s
    if done.returncode:
        raise Broken(f"dueline {' '.join(words)} said: {done.stdout}{done.stderr}")
    return spent_s


def _ready_s(one: Server) -> float:
    begun_s = time.perf_counter()
    one.launch()
    while not one.is_ready():
        if time.perf_counter() - begun_s > READY_S:
            raise Broken(f"the server did not become ready:\n{one.log()[-2000:]}")
        time.sleep(LOOK_S)
    spent_s = time.perf_counter() - begun_s
    one.stop()
    return spent_s
