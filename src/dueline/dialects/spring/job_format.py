"""How a job of the Spring queue is stored as one of ours: written when it is added, read when it is delivered.

The body is `params`; the headers hold the other fields that a delivery must repeat. Only this protocol allows an empty
id. It is stored as "~", and an id that begins with "~" gets another one in front.
"""

from __future__ import annotations

APP, TYPE, TIME, PARAMS = "delay-queue-app", "delay-queue-type", "delay-queue-time", "delay-queue-params"
NO_PARAMS = "null"  # in PARAMS: none were given, as opposed to an empty text
_MARK = "~"


def stored_id(task_id: str) -> str:
    return _MARK + task_id if not task_id or task_id.startswith(_MARK) else task_id


def task_id_of(id: str) -> str:
    """The id as it was added."""
    return id.removeprefix(_MARK)
