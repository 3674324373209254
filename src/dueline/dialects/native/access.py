"""The topics that a request names, and the rights that depend on its body. No I/O.

The server has checked the right of the route and the namespace before the body was read. These checks come after
decoding and before the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...api import requests as r
from ...api.operations import Operation
from ...rights import Grant, Right
from ..http import check_all_topics, check_right, check_topic

Check = Callable[[Grant, tuple[str, ...], Any], None]
"""check(grant, placeholders of the path, request struct). Raises Forbidden."""


def access_check(operation: Operation) -> Check | None:
    """The check of an operation. None: the server has already checked everything."""
    if operation.name == "put_topic":
        return _put_topic
    if operation.name == "pull_topics":
        return _pull_topics
    if operation.name in ("list_topics", "list_audit"):
        return lambda grant, _params, _request: check_all_topics(grant)
    if "{topic}" in operation.pattern:
        return lambda grant, params, _request: check_topic(grant, params[0])
    return None


def _put_topic(grant: Grant, params: tuple[str, ...], request: r.PutTopic) -> None:
    """A dead job is forwarded as if the caller had sent it."""
    check_topic(grant, params[0])
    if request.on_dead is not None and request.on_dead.topic is not None:
        check_right(grant, Right.SEND)
        check_topic(grant, request.on_dead.topic)
    if request.on_dead is not None and request.on_dead.url is not None:
        check_right(grant, Right.PUSH)


def _pull_topics(grant: Grant, _params: tuple[str, ...], request: r.PullTopics) -> None:
    for topic in request.topics:
        check_topic(grant, topic)
