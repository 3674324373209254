"""The errors of the six actions, in the tree of `dueline.engine.errors`.

DuelineError
├── BadRequest ── InvalidField ── Invalid    an invalid argument; also a ValueError
├── Conflict ── Locked                       another worker holds the lock
├── StoreFull                                the store is out of memory; nothing was done
└── Unavailable
    ├── StoreDown, Loading                   nothing was done
    └── UnknownOutcome                       no answer arrived; the action may have been done
"""

from __future__ import annotations

from dueline.engine.errors import Conflict, InvalidField


class Invalid(InvalidField, ValueError):
    """An argument has an invalid value."""


class Locked(Conflict):
    """locked"""

    code = "locked"
