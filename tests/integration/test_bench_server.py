"""The servers that a benchmark starts."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARK = """
import sys, time
from pathlib import Path
from bench.servers import Server

one = Server(Path(sys.argv[1]))
one.start()
print(one.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmark needs Linux")
def test_a_server_ends_with_a_benchmark_that_was_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", BENCHMARK, str(tmp_path / "data")]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as benchmark:
        assert benchmark.stdout is not None
        server = os.pidfd_open(int(benchmark.stdout.readline()))
        benchmark.kill()
    try:
        ended, _, _ = select.select([server], [], [], 20)
        assert ended
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, signal.SIGKILL)
        os.close(server)
