from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..kit import Runner, serve
from .kit import Youzan


@pytest.fixture(scope="session")
def youzan(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Youzan]:
    """A server; a test takes connections of its own with `another()`."""
    served = runner.run(serve(tmp_path_factory.mktemp("youzan")))
    yield Youzan(served)
    runner.run(served.stop())
