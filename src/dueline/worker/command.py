"""A handler in any language: a program that is started for every job.

    stdin                   the body: bytes as they are, a text as UTF-8, any other JSON as its text
    DUELINE_JOB_ID          and DUELINE_TOPIC, DUELINE_ATTEMPT, DUELINE_MAX_ATTEMPTS (empty: no limit),
                            DUELINE_DELIVERY, DUELINE_DUE_AT_MS, DUELINE_MERGE_KEY, DUELINE_HEADERS and DUELINE_TAGS
                            (JSON)
    DUELINE_URL             and DUELINE_NAMESPACE: where `dueline send` inside the program sends

    exit 0                  done
    exit 65 (EX_DATAERR)    dead (rejected): this body will never do
    any other, a signal     released by the job's retry policy; the end of stderr is kept as its last error.
                            75 (EX_TEMPFAIL) is the customary one

The exit code counts as soon as there is one. What the program leaves running goes on, but stderr is read for half a
second more only: who writes there later finds it closed.

A stop sends SIGTERM to the programs that run: one that then ends with 0 is done, any other end costs no attempt. When
the grace is over, at the timeout and when the lease is lost, the program's whole process group is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import msgspec

from .context import Context
from .orphans import ends_with
from .outcomes import MAX_ERROR_BYTES, Discard, Retry, Snooze, bounded

EX_DATAERR = 65
LAST_WORDS_S = 0.5  # for what is left of stderr when the program has ended
_STDIN, _STDERR = 0, 2


class Command:
    """`argv` for every job. `environment`: added to this process's own."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._running: set[_Program] = set()
        self._stopping = False

    def stop(self) -> None:
        """Ask the programs that run to end."""
        self._stopping = True
        for program in self._running:
            program.signal(signal.SIGTERM)

    async def run(self, body: bytes, context: Context) -> None:
        """The handler: raises Retry, Discard or Snooze, as the program's end says."""
        if self._stopping:
            raise Snooze(0)
        _, program = await asyncio.get_running_loop().subprocess_exec(
            _Program,
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=None,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment, **variables(context)},
            start_new_session=True,  # Ctrl-C is for us to forward
            preexec_fn=ends_with(os.getpid(), signal.SIGTERM),
        )
        self._running.add(program)
        try:
            program.feed(body)
            code = await program.end()
        finally:
            self._running.discard(program)
        self._judge(code, "" if code == 0 else await program.last_words())

    def _judge(self, code: int, said: str) -> None:
        if code == 0:
            return
        reason = bounded(f"{_ended(code)}\n{said}".rstrip())
        if code == EX_DATAERR:
            raise Discard(reason)
        if self._stopping:
            raise Snooze(0, reason)
        raise Retry(reason)


def variables(context: Context) -> dict[str, str]:
    """What a program is told about its job."""
    job = context.job
    return {
        "DUELINE_JOB_ID": job.id,
        "DUELINE_TOPIC": job.topic,
        "DUELINE_ATTEMPT": str(job.attempt),
        "DUELINE_MAX_ATTEMPTS": "" if job.max_attempts is None else str(job.max_attempts),
        "DUELINE_DELIVERY": str(job.delivery),
        "DUELINE_DUE_AT_MS": str(job.due_at_ms),
        "DUELINE_MERGE_KEY": job.merge_key or "",
        "DUELINE_HEADERS": msgspec.json.encode(job.headers).decode(),
        "DUELINE_TAGS": msgspec.json.encode(job.tags).decode(),
    }


class _Program(asyncio.SubprocessProtocol):
    """One run. It is over when the program has ended, not when everything that it started has: what is left may hold
    stderr, and stdin, for as long as it likes."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._hushed: asyncio.Future[None] = loop.create_future()  # nobody holds its stderr
        self._said = b""
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on what it says on stderr, and keep the end of it."""
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        self._said = (self._said + data)[-MAX_ERROR_BYTES:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDERR and not self._hushed.done():
            self._hushed.set_result(None)

    def process_exited(self) -> None:
        self._ended.set_result(None)
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self._close)

    def feed(self, body: bytes) -> None:
        """The body is its stdin; a program need not read it."""
        stdin = self._stdin()
        stdin.write(body)
        stdin.close()

    async def end(self) -> int:
        """Its exit code, as soon as there is one. Who stops waiting kills it with all that it started."""
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            if not self._ended.done():
                self.signal(signal.SIGKILL)
                await asyncio.wait({self._ended})
                raise
        assert self._transport is not None
        code = self._transport.get_returncode()
        assert code is not None
        return code

    async def last_words(self) -> str:
        """The end of what it said. It has ended, so whatever ends this wait, its exit code counts."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self._hushed}, timeout=LAST_WORDS_S)
        return self._said.decode(errors="replace")

    def signal(self, number: int) -> None:
        """To the program and all that it started."""
        assert self._transport is not None
        try:
            os.killpg(self._transport.get_pid(), number)
        except ProcessLookupError:
            pass

    def _close(self) -> None:
        """Let go of the pipes, whoever holds the other ends."""
        assert self._transport is not None
        stdin = self._stdin()
        if stdin.get_write_buffer_size():  # else it is closed already
            stdin.abort()
        self._transport.close()

    def _stdin(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(_STDIN)
        assert isinstance(pipe, asyncio.WriteTransport)
        return pipe


def _ended(code: int) -> str:
    return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
