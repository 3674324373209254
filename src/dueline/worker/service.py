"""The application's side of the Spring queue's service mode: receive jobs over HTTP, and submit jobs.

    service = SpringService("billing", center_url="http://127.0.0.1:9023", modules=["billing.tasks"])

    app = service.asgi                     # or .wsgi: answers POST /hf/delay_queue/work, mount it where you like
    service.submit("task1", "p", delay="30m")
    async with service.registered("http://127.0.0.1:8761/eureka", port=8000): ...     # needs the extra `eureka`

All TaskWorker classes of a job's type are invoked with its `params`, one after the other, before the answer. Like the
original, the answer is 200 "accepted" even if they fail. With `strict=True` a failure is answered with 500, so that a
Dueline server retries the job.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Raw

from ..api.answers import LeasedJob
from ..client.address import shown, split
from ..client.connection import Connection, secured
from ..client.times import Duration, Moment, duration_ms, moment_ms
from ..http1.messages import BadResponse, request_bytes
from .bodies import takes_texts
from .child import call_here
from .context import Context, refuse_in_loop
from .handlers import Handler
from .tasks import TaskWorker, find_tasks, task_handler

PATH = "/hf/delay_queue/work"
TASK_KEY = "delay-queue:task"
MAX_BODY_BYTES = 8 << 20
TIMEOUT_S = 10.0

log = logging.getLogger("dueline.worker")

Answer = tuple[int, bytes]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job as sent in either direction. Fields that are None are omitted."""

    taskId: str
    taskType: str
    delayTime: int = 0
    params: str | None = None
    appName: str | None = None


class SubmitFailed(Exception):
    """The queue did not accept a job. `status` None: there was no answer, so the job may have been accepted."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class SpringService:
    """An application named `app_name` and its tasks: those in `tasks`, and those found in `modules`.

    `center_url`: the queue to which `submit` adds jobs. `strict`: a failed task is answered with 500, so that a Dueline
    server retries it."""

    def __init__(
        self,
        app_name: str,
        center_url: str | None = None,
        modules: Sequence[str | ModuleType] = (),
        tasks: Iterable[type[TaskWorker]] = (),
        strict: bool = False,
    ) -> None:
        self.app_name = app_name
        self.strict = strict
        self._center_url = None if center_url is None else center_url.rstrip("/")
        self._handlers: dict[str, list[Handler]] = {}
        for kind in [*tasks, *find_tasks(modules)]:
            handler = task_handler(kind)
            several = self._handlers.setdefault(handler.topic, [])
            if all(handler.location != other.location for other in several):
                several.append(handler)

    @property
    def task_types(self) -> tuple[str, ...]:
        """The task types, as published in the registry under `delay-queue:task`."""
        return tuple(self._handlers)

    # --- taking work ------------------------------------------------------------------------------------------------

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application. It may be mounted at any path, because only the end of the request path is matched."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        status, answer = _refusal(scope["method"], scope["path"]) or await self._taken(await _body(receive))
        headers = [(b"content-type", b"text/plain;charset=UTF-8"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """The same service as a WSGI application."""
        method, path = environ["REQUEST_METHOD"], environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        status, answer = _refusal(method, path) or self.take(_wsgi_body(environ))
        phrase = HTTPStatus(status).phrase
        headers = [("Content-Type", "text/plain;charset=UTF-8"), ("Content-Length", str(len(answer)))]
        start_response(f"{status} {phrase}", headers)
        return [answer]

    async def _taken(self, body: bytes | None) -> Answer:
        """`take` in a thread, because tasks may block; coroutines get an event loop of their own."""
        return await asyncio.to_thread(self.take, body)

    def take(self, body: bytes | None) -> Answer:
        """Run the job in a request body and return the status and text to answer. None: the body was too large."""
        if body is None:
            return 413, b"the body is too large"
        try:
            work = msgspec.json.decode(body, type=Work)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
            return 400, f"not a job: {wrong}".encode()
        failed = [handler for handler in self._handlers.get(work.taskType, ()) if not _invoked(handler, work)]
        return (500, b"failed") if failed and self.strict else (200, b"accepted")

    # --- adding jobs ------------------------------------------------------------------------------------------------

    def submit(
        self,
        task_type: str,
        params: Any = None,
        *,
        id: str | None = None,
        delay: Duration | None = None,
        at: Moment | None = None,
    ) -> str:
        """Add a job for this application and return its id. `params` other than a text are sent as JSON.

        A job with the same `id` is replaced, so with an explicit id it is safe to retry after SubmitFailed."""
        refuse_in_loop("asubmit")
        return self._submit(self._work(task_type, params, id, delay, at))

    async def asubmit(
        self,
        task_type: str,
        params: Any = None,
        *,
        id: str | None = None,
        delay: Duration | None = None,
        at: Moment | None = None,
    ) -> str:
        """`submit` for coroutines."""
        return await asyncio.to_thread(self._submit, self._work(task_type, params, id, delay, at))

    def _work(self, task_type: str, params: Any, id: str | None, delay: Duration | None, at: Moment | None) -> Work:
        if delay is not None and at is not None:
            raise ValueError("give delay or at, not both")
        due_ms = 0 if at is None else moment_ms(at)
        if delay is not None:  # this protocol has only absolute times, so the local clock is used
            due_ms = moment_ms(datetime.now(UTC)) + duration_ms(delay)
        text = params if params is None or isinstance(params, str) else msgspec.json.encode(params).decode()
        return Work(id or os.urandom(16).hex(), task_type, due_ms, text, self.app_name)

    def _submit(self, work: Work) -> str:
        if self._center_url is None:
            raise ValueError("set center_url to the URL of the queue")
        parts, place = split(self._center_url), shown(self._center_url)
        tls = secured(None) if parts.scheme == "https" else None
        headers = {"Host": parts.netloc.rpartition("@")[2], "Content-Type": "application/json;charset=UTF-8"}
        request = request_bytes("POST", f"{parts.path}/job/add", headers, msgspec.json.encode(work))
        try:
            connection = Connection(parts.hostname or "", parts.port or (443 if tls else 80), TIMEOUT_S, tls)
            try:
                answer = connection.exchange(request, time.monotonic() + TIMEOUT_S)
            finally:
                connection.close()
        except (OSError, BadResponse) as lost:
            raise SubmitFailed(f"{place} did not answer: {lost or type(lost).__name__}") from lost
        if answer.status != 200:
            raise SubmitFailed(f"{place} answered {answer.status}: {answer.body[:200]!r}", answer.status)
        return work.taskId

    # --- standing in the registry -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def registered(
        self, eureka_url: str, port: int, host: str | None = None, **options: Any
    ) -> AsyncGenerator[None]:
        """Register with Eureka for the duration of the block, with the task types as metadata. `options` are passed to
        py-eureka-client. `host`: an address that the queue can reach; by default the Eureka client detects it."""
        try:
            from py_eureka_client.eureka_client import EurekaClient
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError("registration needs py-eureka-client: install dueline[eureka]") from missing
        own: dict[str, Any] = {} if host is None else {"instance_host": host, "instance_ip": host}
        client = EurekaClient(
            eureka_server=eureka_url,
            app_name=self.app_name,
            instance_port=port,
            metadata={TASK_KEY: ", ".join(self.task_types)},
            should_discover=False,
            **{**own, **options},
        )
        await client.start()
        try:
            yield
        finally:
            await client.stop()


def _leased_job(work: Work, as_text: bool) -> LeasedJob:
    """The job in the form that handlers take, with `params` as a text or as JSON. It has no lease, because the HTTP
    call itself is the delivery."""
    text = msgspec.json.encode(work.params)
    return LeasedJob(
        body=Raw(text if as_text or work.params is None else work.params.encode()),
        id=work.taskId,
        topic=work.taskType,
        attempt=1,
        delivery=1,
        lease="",
        lease_until_ms=0,
        due_at_ms=work.delayTime,
        created_at_ms=work.delayTime,
    )


def _invoked(handler: Handler, work: Work) -> bool:
    """Call one handler and return whether it succeeded. Failures are logged, as in the original. A task must not end
    the program that runs it: SystemExit is a failure too, and so is KeyboardInterrupt if only the task can raise it."""
    job = _leased_job(work, handler.read is None or takes_texts(handler.read))
    try:
        result = call_here(handler, job, Context(job, _NoLease()))
    except BaseException as raised:
        if isinstance(raised, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        log.exception("%s %s failed in %s", job.topic, job.id, handler.name)
        return False
    if isinstance(result, Exception):  # Retry, Snooze, Discard: this protocol has none of them
        log.warning("%s %s: %s returned %r", job.topic, job.id, handler.name, result)
        return False
    return True


class _NoLease:
    """This protocol has no leases, so there is nothing to renew."""

    lease_until_ms = 0
    stopping = False

    async def extend(self, lease_ms: int | None) -> None:
        """Nothing to do."""

    def extend_blocking(self, lease_ms: int | None) -> None:
        """Nothing to do."""


def _refusal(method: str, path: str) -> Answer | None:
    if not path.endswith(PATH):
        return 404, b"not found"
    return None if method == "POST" else (405, b"method not allowed")


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _wsgi_body(environ: dict[str, Any]) -> bytes | None:
    """The same for WSGI. An invalid length counts as no body."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdigit()):
        return b""
    is_large = len(length) > 18 or int(length) > MAX_BODY_BYTES
    return None if is_large else environ["wsgi.input"].read(int(length))


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
