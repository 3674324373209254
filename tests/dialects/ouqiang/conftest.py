from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..kit import Runner, serve
from .kit import Ouqiang

# Lowered so that a case takes seconds: queue_block_timeout. All else is as documented.
HOLD_MS = 6_500
OPTIONS = {"DUELINE_DIALECTS__OUQIANG__HOLD_MS": str(HOLD_MS)}


@pytest.fixture(scope="session")
def ouqiang(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ouqiang]:
    """A server; a test takes connections of its own with `another()`."""
    served = runner.run(serve(tmp_path_factory.mktemp("ouqiang"), OPTIONS))
    yield Ouqiang(served)
    runner.run(served.stop())
