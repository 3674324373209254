"""The rows of the table. Each measures one target and returns its lines. To add a row, write a function and list it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..report import Line
from ..sizes import Sizes
from .calm import calm
from .cpu import cpu
from .crowd import crowd
from .dashboard import dashboard
from .depth import depth
from .dialects import dialects
from .first_sends import first_sends
from .growth import growth
from .history import history
from .idle import idle
from .lateness import lateness
from .limits import limits
from .memory import memory
from .push import push
from .restart import restart
from .resting import resting
from .scale import scale
from .schedules import schedules
from .seeing import seeing
from .start import start
from .stores import stores
from .throughput import throughput
from .transport import transport
from .wakeup import wakeup
from .worker import worker

Row = Callable[[Sizes], Sequence[Line]]

ROWS: dict[str, Row] = {
    "cpu": cpu,
    "throughput": throughput,
    "calm": calm,
    "first_sends": first_sends,
    "start": start,
    "lateness": lateness,
    "schedules": schedules,
    "resting": resting,
    "memory": memory,
    "history": history,
    "depth": depth,
    "growth": growth,
    "idle": idle,
    "restart": restart,
    "transport": transport,
    "wakeup": wakeup,
    "worker": worker,
    "dialects": dialects,
    "push": push,
    "crowd": crowd,
    "limits": limits,
    "scale": scale,
    "stores": stores,
    "dashboard": dashboard,
    "seeing": seeing,
}
COMPARING = {"cpu"}
"""Rows that can measure several products in turns."""
