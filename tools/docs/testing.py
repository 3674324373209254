"""The reference of the testing kit, made from signatures and docstrings: `python -m tools.docs.testing`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from dueline.client.api import Api
from dueline.testing import pytest_plugin
from dueline.testing.checker import Report, Violation
from dueline.testing.client_history import Broken, History, WatchedClient
from dueline.testing.flaky import FlakyStore, Trouble
from dueline.testing.queue import QueueClock, VirtualQueue
from dueline.testing.recorder import HandledJob, Recorder, SentJob
from dueline.testing.server import PrivateServer
from tools.docs.reference import a_class, text_of
from tools.docs.wrap import wrapped

_HEAD = """# Reference of the testing kit

Generated from the code by `make docs`. The [guide](testing.md) comes first.

## Fixtures

They are available wherever `dueline[testing]` is installed.

| fixture | is a | |
|---|---|---|
"""

SECTIONS: dict[str, tuple[type[Any], ...]] = {
    "A queue in virtual time: `dueline.testing.queue`": (VirtualQueue, QueueClock),
    "What was sent and handled: `dueline.testing.recorder`": (Recorder, SentJob, HandledJob),
    "An unreliable store: `dueline.testing.flaky`": (Trouble, FlakyStore),
    "A private server: `dueline.testing.server`": (PrivateServer,),
    "Checked histories: `dueline.testing.client_history`": (
        History,
        WatchedClient,
        Broken,
        Report,
        Violation,
    ),
}
GIVEN = (QueueClock, Recorder, FlakyStore, WatchedClient)  # tests receive these and do not create them
INSIDE: dict[type[Any], tuple[str, ...]] = {
    VirtualQueue: ("engine",),
    Recorder: ("note_sent", "note_handled"),
    FlakyStore: tuple(name for name in vars(FlakyStore) if name not in ("calm", "stir")),
    History: ("add", "saw", "now_ns"),
}


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *_fixtures()]
    for title, kinds in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        parts += [a_class(kind, INSIDE.get(kind, ()), Api, made=kind not in GIVEN) for kind in kinds]
    return wrapped("".join(parts))


def fixtures() -> dict[str, Any]:
    """The functions behind the fixtures, in their order."""
    wrapped = {
        name: inspect.unwrap(getattr(value, "_fixture_function", value)) for name, value in vars(pytest_plugin).items()
    }
    return {name: function for name, function in wrapped.items() if name.startswith("dueline_")}


def _fixtures() -> Iterator[str]:
    for name, function in fixtures().items():
        made = str(inspect.signature(function).return_annotation).removeprefix("Iterator[").removesuffix("]")
        text = " ".join(text_of(function).split())
        yield f"| `{name}` | `{made}` | {text} |\n"


if __name__ == "__main__":
    print(page(), end="")
