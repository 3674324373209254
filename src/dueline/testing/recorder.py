"""Records for a test what its queue did: every job that was sent, and every run of a handler, in order.

    recorder.sent("orders.close")        [SentJob(id="close-7", body={"order": 7}, ...)]
    recorder.handled("orders.close")     [HandledJob(id="close-7", attempt=1, outcome="done", ...)]
    recorder.failed()                    the runs that ended with an exception

Refused sends are not recorded. Neither are jobs that the engine itself sends (on_dead).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from ..engine.commands import Send, Sent
from ..engine.completion import Done
from ..engine.engine import Engine
from ..engine.errors import DuelineError
from ..engine.job import BodyKind
from ..rights import EVERYTHING, Grant


class SentJob(msgspec.Struct, frozen=True, kw_only=True):
    """A successful send. `result` is created, kept, replaced or appended. For a merge, `id` is the group's id."""

    namespace: str
    topic: str
    id: str
    body: Any
    result: str
    at_ms: int
    due_at_ms: int
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    merge_key: str | None = None

    @property
    def delay_ms(self) -> int:
        """The time from the send to the due time."""
        return max(0, self.due_at_ms - self.at_ms)


class HandledJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a topic's handlers. `outcome` is done, failed, cancelled, or what the handler requested: retry,
    snooze, discard. `error` is what was raised."""

    topic: str
    id: str
    body: Any
    attempt: int
    at_ms: int
    outcome: str
    error: BaseException | None = None


class Recorder:
    """Written by the queue, read by the test. Any thread may read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[SentJob] = []
        self._handled: list[HandledJob] = []

    def sent(self, topic: str | None = None) -> list[SentJob]:
        """The sends of a topic, or all."""
        return _of(self._sent, topic, self._lock)

    def handled(self, topic: str | None = None) -> list[HandledJob]:
        """The runs of a topic's handlers, or all."""
        return _of(self._handled, topic, self._lock)

    def failed(self, topic: str | None = None) -> list[HandledJob]:
        """The runs that ended with an exception."""
        return [run for run in self.handled(topic) if run.outcome == "failed"]

    def bodies(self, topic: str) -> list[Any]:
        """The bodies that a topic's handlers finished, in order."""
        return [run.body for run in self.handled(topic) if run.outcome == "done"]

    def clear(self) -> None:
        """Drop all records so far."""
        with self._lock:
            self._sent.clear()
            self._handled.clear()

    def note_sent(self, job: SentJob) -> None:
        with self._lock:
            self._sent.append(job)

    def note_handled(self, job: HandledJob) -> None:
        with self._lock:
            self._handled.append(job)


def _of(entries: list[Any], topic: str | None, lock: threading.Lock) -> list[Any]:
    with lock:
        return [entry for entry in entries if topic is None or entry.topic == topic]


class RecordingEngine(Engine):
    """An engine that reports every send to a recorder."""

    recorder: Recorder | None = None

    def post_send(self, namespace: str, topic: str, command: Send, grant: Grant, done: Done) -> None:
        def on_reply(sent: Sent | BaseException) -> None:
            if isinstance(sent, Sent):
                self._note(namespace, command, sent)
            done(sent)

        super().post_send(namespace, topic, command, grant, on_reply)

    async def send_many(
        self, namespace: str, topic: str, commands: Sequence[Send], grant: Grant = EVERYTHING
    ) -> list[Sent | DuelineError]:
        results = await super().send_many(namespace, topic, commands, grant)
        for command, result in zip(commands, results, strict=True):
            if isinstance(result, Sent):
                self._note(namespace, command, result)
        return results

    def _note(self, namespace: str, command: Send, sent: Sent) -> None:
        if self.recorder is None:
            return
        self.recorder.note_sent(
            SentJob(
                namespace=namespace,
                topic=sent.topic,
                id=sent.id,
                body=value_of(command.body, command.kind),
                result=sent.result,
                at_ms=self.store.now_ms(),
                due_at_ms=sent.due_at_ms,
                tags=command.tags,
                headers=dict(command.headers),
                merge_key=None if command.merge is None else command.merge.key,
            )
        )


def value_of(body: bytes, kind: BodyKind) -> Any:
    """A body in the form that a test compares: the JSON value, the text, or the bytes."""
    if kind is BodyKind.JSON:
        return msgspec.json.decode(body)
    return body.decode() if kind is BodyKind.TEXT else body
