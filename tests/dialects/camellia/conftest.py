from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..kit import Runner, serve
from .kit import Camellia

# Lowered so that a case takes seconds: end-life-msg-expire-millis, monitor-interval-seconds. All else is as documented.
RETAIN_MS, WINDOW_MS = 8_000, 3_000
OPTIONS = {
    "DUELINE_DIALECTS__CAMELLIA__RETAIN_MS": str(RETAIN_MS),
    "DUELINE_DIALECTS__CAMELLIA__MONITOR_WINDOW_MS": str(WINDOW_MS),
}


@pytest.fixture(scope="session")
def camellia(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Camellia]:
    """A server; a test takes connections of its own with `another()`."""
    served = runner.run(serve(tmp_path_factory.mktemp("camellia"), OPTIONS))
    yield Camellia(served)
    runner.run(served.stop())
