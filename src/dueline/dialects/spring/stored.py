"""How a job of the Spring queue stands in a job of ours: what is written when it is added and read at its delivery.

The body is `params`; the headers keep the other fields that a delivery must repeat. An id may be empty here and nowhere
else: it is stored as a mark, and an id that begins with the mark gets one more.
"""

from __future__ import annotations

APP, TYPE, TIME, PARAMS = "delay-queue-app", "delay-queue-type", "delay-queue-time", "delay-queue-params"
NO_PARAMS = "null"  # in PARAMS: there were none, which is not the same as an empty text
_MARK = "~"


def stored_id(task_id: str) -> str:
    return _MARK + task_id if not task_id or task_id.startswith(_MARK) else task_id


def task_id_of(id: str) -> str:
    """The id as it was added."""
    return id.removeprefix(_MARK)
