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

A stop sends SIGTERM to the programs that run: one that then ends with 0 is done, any other end costs no attempt. When
the grace is over, at the timeout and when the lease is lost, the program's whole process group is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import msgspec

from .context import Context
from .orphans import ends_with
from .outcomes import MAX_ERROR_BYTES, Discard, Retry, Snooze, bounded

EX_DATAERR = 65
_READ_BYTES = 65_536


class Command:
    """`argv` for every job. `environment`: added to this process's own."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._running: set[asyncio.subprocess.Process] = set()
        self._stopping = False

    def stop(self) -> None:
        """Ask the programs that run to end."""
        self._stopping = True
        for process in self._running:
            _signal(process, signal.SIGTERM)

    async def run(self, body: bytes, context: Context) -> None:
        """The handler: raises Retry, Discard or Snooze, as the program's end says."""
        if self._stopping:
            raise Snooze(0)
        process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment, **variables(context)},
            start_new_session=True,  # Ctrl-C is for us to forward
            preexec_fn=ends_with(os.getpid(), signal.SIGTERM),
        )
        self._running.add(process)
        try:
            _, said, code = await asyncio.gather(_feed(process, body), _overheard(process), process.wait())
        except asyncio.CancelledError:
            _signal(process, signal.SIGKILL)
            await process.wait()
            raise
        finally:
            self._running.discard(process)
        self._judge(code, said)

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


async def _feed(process: asyncio.subprocess.Process, body: bytes) -> None:
    """Write the body; a program need not read it."""
    assert process.stdin is not None
    try:
        process.stdin.write(body)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass


async def _overheard(process: asyncio.subprocess.Process) -> str:
    """Pass on what the program says on stderr, and keep the end of it."""
    assert process.stderr is not None
    end = b""
    while data := await process.stderr.read(_READ_BYTES):
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        end = (end + data)[-MAX_ERROR_BYTES:]
    return end.decode(errors="replace")


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """To the program and all that it started."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def _ended(code: int) -> str:
    return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
