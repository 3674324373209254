"""A handler in any language: a program that runs once for every job.

    stdin                   the body: bytes as they are, a text as UTF-8, any other JSON as its text
    DUELINE_JOB_ID          and DUELINE_TOPIC, DUELINE_ATTEMPT, DUELINE_MAX_ATTEMPTS (empty: no limit),
                            DUELINE_DELIVERY, DUELINE_DUE_AT_MS, DUELINE_MERGE_KEY, DUELINE_HEADERS and DUELINE_TAGS
                            (JSON)
    DUELINE_URL             and DUELINE_NAMESPACE: where `dueline send` inside the program sends

    exit 0                  done
    exit 65 (EX_DATAERR)    dead (rejected): retrying this body is useless
    any other, a signal     released by the job's retry policy; the end of stderr is kept as its last error.
                            75 (EX_TEMPFAIL) is customary

The job ends as soon as the program exits. Processes it leaves behind keep running, but stderr is read for another half
second only and is then closed.

A stop sends SIGTERM to the running programs. A program that then exits with 0 is done; any other exit does not count as
an attempt. At the end of the grace period, at the timeout, and when the lease is lost, the program's whole process
group is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import msgspec

from ..parent_death import ends_with
from .context import Context
from .outcomes import MAX_ERROR_BYTES, Discard, Retry, Snooze, bounded

EX_DATAERR = 65
LAST_WORDS_S = 0.5  # how long stderr is read after the program has ended
_STDIN, _STDERR = 0, 2


class Command:
    """Runs `argv` for every job. `environment` is added to that of this process."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._running: set[_Program] = set()
        self._stopping = False

    def stop(self) -> None:
        """Ask the running programs to end."""
        self._stopping = True
        for program in self._running:
            program.signal(signal.SIGTERM)

    async def run(self, body: bytes, context: Context) -> None:
        """The handler. Raises Retry, Discard or Snooze, depending on how the program ended."""
        if self._stopping:
            raise Snooze(0)
        _, program = await asyncio.get_running_loop().subprocess_exec(
            _Program,
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=None,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment, **variables(context)},
            start_new_session=True,  # Ctrl-C must reach only the worker, which decides when programs end
            preexec_fn=ends_with(os.getpid(), signal.SIGTERM),
        )
        self._running.add(program)
        try:
            program.feed(body)
            code = await program.end()
        finally:
            self._running.discard(program)
        self._judge(code, "" if code == 0 else await program.last_words())

    def _judge(self, code: int, stderr: str) -> None:
        if code == 0:
            return
        reason = bounded(f"{_ended(code)}\n{stderr}".rstrip())
        if code == EX_DATAERR:
            raise Discard(reason)
        if self._stopping:
            raise Snooze(0, reason)
        raise Retry(reason)


def variables(context: Context) -> dict[str, str]:
    """The environment variables that describe a job to a program."""
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
    """One run of the program. It is over when the program itself has ended: processes that it started may keep stderr
    and stdin open much longer."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._hushed: asyncio.Future[None] = loop.create_future()  # its stderr is closed
        self._stderr = b""
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Forward its stderr, and keep the end of it."""
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        self._stderr = (self._stderr + data)[-MAX_ERROR_BYTES:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDERR and not self._hushed.done():
            self._hushed.set_result(None)

    def process_exited(self) -> None:
        self._ended.set_result(None)
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self._close)

    def feed(self, body: bytes) -> None:
        """Write the body to its stdin. The program need not read it."""
        stdin = self._stdin()
        stdin.write(body)
        stdin.close()

    async def end(self) -> int:
        """Wait for the process to exit, and return its exit code. Cancelling this wait kills its process group."""
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
        """The end of its stderr. The program has already ended: its exit code counts even if this wait is cut short."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self._hushed}, timeout=LAST_WORDS_S)
        return self._stderr.decode(errors="replace")

    def signal(self, number: int) -> None:
        """Signal its process group."""
        assert self._transport is not None
        try:
            os.killpg(self._transport.get_pid(), number)
        except ProcessLookupError:
            pass

    def _close(self) -> None:
        """Close the pipes, even if another process still holds the other ends."""
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
