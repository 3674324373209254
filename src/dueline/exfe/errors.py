"""What the six actions can refuse, in the tree of `dueline.engine.errors`.

DuelineError
├── InvalidField ── Invalid     an argument that cannot work; also a ValueError
├── Conflict ────── Locked      another worker holds the queue
├── StoreFull                   the store takes no more tasks; nothing was done
└── Unavailable                 StoreDown, Loading: nothing was done
    └── UnknownOutcome          no answer came: the action may have been done
"""

from __future__ import annotations

from dueline.engine.errors import Conflict, InvalidField


class Invalid(InvalidField, ValueError):
    """An argument has a value that cannot work."""


class Locked(Conflict):
    """locked"""

    code = "locked"
