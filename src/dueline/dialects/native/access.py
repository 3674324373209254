"""The topics that a request names, and the rights that depend on its body. No I/O.

The server has checked the right of the route and the namespace before the body was read. These checks come after
decoding and before the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ...api import live_requests as lr
from ...api import requests as r
from ...api.operations import Operation
from ...engine.engine import Engine
from ...rights import Right
from ..http import check_all_topics, check_own_id, check_right, check_shared_partitions, check_topic
from .wire import Caller

Check = Callable[[Caller, tuple[str, ...], Any], None]
"""check(caller, placeholders of the path, request struct). Raises Forbidden."""

ASKS_FOR_RIGHTS = frozenset({"put_topic"})  # the checks of all others always pass a caller who may use every topic


def access_check(operation: Operation, engine: Engine) -> Check | None:
    """The check of an operation. None: the server has already checked everything."""
    if operation.name == "send":
        return _send(engine)
    if operation.name == "put_topic":
        return _put_topic(engine)
    if operation.name == "pull_topics":
        return _pull_topics
    if operation.name == "put_worker":
        return _put_worker
    if operation.name == "events":
        return _events
    if operation.name in ("list_topics", "list_audit", "forecast", "charts"):
        return lambda caller, _params, _request: check_all_topics(caller.grant)
    if "{topic}" in operation.pattern:
        return lambda caller, params, _request: check_topic(caller.grant, params[0])
    return None


def jobs_in(request: Any) -> int:
    """How many jobs a request names; 1 if it names none, such as a filter."""
    if isinstance(request, r.NewJob):  # nearly always
        return 1
    jobs = request if isinstance(request, list) else getattr(request, "ids", None)
    return max(1, len(cast(list[object], jobs))) if isinstance(jobs, list) else 1


def _send(engine: Engine) -> Check:
    def check(caller: Caller, params: tuple[str, ...], request: r.NewJob | list[r.NewJob]) -> None:
        check_topic(caller.grant, params[0])
        if request.id is not None if isinstance(request, r.NewJob) else any(job.id is not None for job in request):
            check_own_id(caller.grant, engine.has_namespace_ids(caller.namespace))

    return check


def _put_topic(engine: Engine) -> Check:
    def check(caller: Caller, params: tuple[str, ...], request: r.PutTopic) -> None:
        """A dead job is forwarded as if the caller had sent it. Partitions may be those of all topics."""
        check_topic(caller.grant, params[0])
        if request.on_dead is not None and request.on_dead.topic is not None:
            check_right(caller.grant, Right.SEND)
            check_topic(caller.grant, request.on_dead.topic)
        if request.on_dead is not None and request.on_dead.url is not None:
            check_right(caller.grant, Right.PUSH)
        if request.partitions is not None and engine.has_namespace_ids(caller.namespace):
            check_shared_partitions(caller.grant)

    return check


def _put_worker(caller: Caller, _params: tuple[str, ...], request: lr.PutWorker) -> None:
    for topic in (*request.topics, *(one.topic for one in request.running)):
        check_topic(caller.grant, topic)


def _events(caller: Caller, _params: tuple[str, ...], request: lr.ListEvents) -> None:
    if not request.topic:
        check_all_topics(caller.grant)
    for topic in request.topic or ():
        check_topic(caller.grant, topic)


def _pull_topics(caller: Caller, _params: tuple[str, ...], request: r.PullTopics) -> None:
    for topic in request.topics:
        check_topic(caller.grant, topic)
