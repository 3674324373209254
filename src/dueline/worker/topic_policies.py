"""The delivery policies that handlers declare, and how their topics get them.

A policy belongs to the topic, so that it applies to jobs from any sender. It is proposed to the queue when a worker
starts, and before a handle sends its first job. The queue accepts it for fields that are unset or were set by a worker.
An operator's value stays, and the difference is logged.

If the queue refuses the proposal (no permission to set topics, or an older server), the worker runs anyway. Jobs sent
through a handle then carry the policy themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

from ..client.errors import (
    Conflict,
    DuelineApiError,
    InvalidRequest,
    NotAllowed,
    NotFound,
    ServerFault,
    Unavailable,
    UnknownOutcome,
)
from ..client.sending import Policy, job_fields
from ..client.times import duration_ms
from .queue import Queue

REST_S = 5.0  # between proposals to an unavailable queue

log = logging.getLogger("dueline.worker")

_REFUSED = (NotAllowed, InvalidRequest, NotFound, Conflict)


class TopicPolicies:
    """The policies that the handlers of one worker declare, by topic."""

    def __init__(self) -> None:
        self._wanted: dict[str, Policy] = {}
        # By queue and topic, once the queue has answered: the policy that each job must carry itself.
        self._carried: WeakKeyDictionary[Queue, dict[str, Policy]] = WeakKeyDictionary()

    def add(self, topic: str, policy: Policy) -> None:
        """Add a handler's policy. Raises ValueError or TypeError if it is invalid, or if two handlers of a topic
        disagree."""
        job_fields(policy)
        known = self._wanted.get(topic, Policy())
        for name, value in policy.items():
            if known.get(name, value) != value:
                raise ValueError(f"the handlers of {topic} disagree: {name} is {known.get(name)!r} and {value!r}")
        if policy:
            self._wanted[topic] = cast("Policy", {**known, **policy})

    async def propose_all(self, queue: Queue) -> None:
        """Propose every policy, retrying until the queue has answered."""
        for topic in list(self._wanted):
            while True:
                try:
                    await self._propose(queue, topic)
                    break
                except DuelineApiError as error:
                    if not isinstance(error, Unavailable):  # the pulls already log that the queue is unavailable
                        log.warning("the policy of %s is not set yet: %s", topic, error)
                    await asyncio.sleep(REST_S)

    async def carried(self, queue: Queue, topic: str) -> Policy:
        """The policy that a job must carry itself; empty if the topic has it. Raises if the queue is unavailable, so
        that the job is not sent."""
        if topic not in self._wanted:
            return {}
        if topic not in self._carried.get(queue, ()):
            try:
                await self._propose(queue, topic)
            except (UnknownOutcome, ServerFault):
                return self._wanted[topic]
        return self._carried[queue][topic]

    async def _propose(self, queue: Queue, topic: str) -> None:
        wanted = self._wanted[topic]
        answered = self._carried.setdefault(queue, {})
        try:
            policy = await queue.propose_policy(topic, wanted)
        except _REFUSED as refused:
            log.warning(
                "the policy of %s could not be set; only jobs sent through its handler get it: %s", topic, refused
            )
            answered[topic] = wanted
            return
        answered[topic] = {}
        for name, value in job_fields(wanted).items():
            if not is_shown(value, policy.get(name)):
                log.warning(
                    "%s: an operator set %s to %s; the handler's %s is not used", topic, name, policy.get(name), value
                )


def is_shown(wanted: Any, shown: Any) -> bool:
    """Whether the API shows the wanted value. It spells waits in its own way, and shows a backoff with its defaults."""
    if not isinstance(wanted, Mapping) or not isinstance(shown, Mapping):
        return wanted == shown
    asked, found = cast("Mapping[str, Any]", wanted), cast("Mapping[str, Any]", shown)
    if "ladder" in asked:
        return _waits_ms(asked) == _waits_ms(found)
    return all(found.get(name) == value for name, value in asked.items())


def _waits_ms(rule: Mapping[str, Any]) -> list[int]:
    return [duration_ms(wait) for wait in rule.get("ladder", ())]
