"""The pytest plugin `dueline`: fixtures for programs that use Dueline. `pip install "dueline[testing]"` enables it.

    dueline_queue         a queue inside the test, in virtual time            testing.queue.VirtualQueue
    dueline_make_queue    the same, with arguments: start time, faults        VirtualQueue(...)
    dueline_clock         its clock: dueline_clock.advance("30d")
    dueline_client        a Client of it
    dueline_recorder      what was sent, what was handled                     testing.recorder.Recorder
    dueline_server        a real server with its own data (dueline[server])   testing.server.PrivateServer
    dueline_history       clients whose calls are recorded and checked        testing.client_history.History

Only this file is imported until a test uses one of the fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .client_history import History
    from .local_client import LocalClient
    from .queue import QueueClock, VirtualQueue
    from .recorder import Recorder
    from .server import PrivateServer


@pytest.fixture
def dueline_make_queue() -> Iterator[Callable[..., VirtualQueue]]:
    """Makes open queues in virtual time, with the arguments of VirtualQueue. They are closed after the test."""
    from .queue import VirtualQueue

    made: list[VirtualQueue] = []

    def make(**options: Any) -> VirtualQueue:
        made.append(queue := VirtualQueue(**options))
        queue.open()
        return queue

    try:
        yield make
    finally:
        for queue in made:
            queue.close()


@pytest.fixture
def dueline_queue(dueline_make_queue: Callable[..., VirtualQueue]) -> VirtualQueue:
    """A queue inside the test, in virtual time that starts at the real time."""
    return dueline_make_queue()


@pytest.fixture
def dueline_clock(dueline_queue: VirtualQueue) -> QueueClock:
    """The clock of `dueline_queue`."""
    return dueline_queue.clock


@pytest.fixture
def dueline_client(dueline_queue: VirtualQueue) -> LocalClient:
    """A Client of `dueline_queue`."""
    return dueline_queue.client


@pytest.fixture
def dueline_recorder(dueline_queue: VirtualQueue) -> Recorder:
    """What was sent to `dueline_queue`, and what its workers handled."""
    return dueline_queue.recorder


@pytest.fixture
def dueline_server(tmp_path: Path) -> Iterator[PrivateServer]:
    """A real server, for this test only, with an embedded store in the test's folder."""
    from .server import PrivateServer

    with PrivateServer(tmp_path / "dueline-server") as server:
        yield server


@pytest.fixture
def dueline_history() -> Iterator[History]:
    """A history of what clients did and saw. It is checked at the end of the test, unless the test did so itself."""
    from .client_history import History

    history = History()
    yield history
    if not history.judged:
        history.check()
