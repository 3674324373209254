"""The embedded store: a Valkey server as a supervised child process. An acknowledged write is on disk.

    start: lock the folder -> check that no data is missing -> write the config -> fork -> wait while LOADING -> ready
    exit:  plain      restart with backoff (0.05 s doubling to 5 s)
           disk full  with `appendfsync always` the store exits rather than acknowledge a write that it cannot keep;
                      it is started again when there is space
           corrupt    no restart; the message says how to check and repair the file
           data lost  no start and no restart; the message says how to accept the loss (embedded_extent)
    every 1 s: record the new sizes of the files (embedded_extent).
    every 5 s: one INFO and one statvfs. If little space is left, maxmemory is set to 1 byte. Then sends are refused as
               "full" in every process, while pulls, acks and cancels continue (their scripts have `allow-oom`).

The child has a parent-death signal, and is the only process to inherit the descriptor of the folder's lock. It has its
own session, so Ctrl-C reaches only the server, which drains first. The store ends cleanly with the thread that started
it. Start it from the main thread, or with `any_thread` from a thread that lives as long as the store is needed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ...event_log import EventLog
from ...parent_death import ends_with_parent
from . import embedded_files as files
from .child_exit import exit_of
from .embedded_connection import Loading, NotThere, SupervisorConnection
from .embedded_extent import DataLost, ExtentRecord, accepted_loss
from .embedded_files import EmbeddedError
from .embedded_lock import ORPHAN_WAIT_S, FolderInUse, FolderLock
from .embedded_memory import default_ceiling_bytes
from .embedded_status import Status, StoreState
from .tls import StoreTls

__all__ = ["EmbeddedError", "EmbeddedStore", "FolderInUse", "Status", "StoreState"]

HEALTH_EVERY_S = 5.0
NOTE_EVERY_S = 1.0
QUIET_S = 600.0
BACK_OFF_S = (0.05, 5.0)
MIN_FREE_BYTES = 128 << 20
LOW_SPACE_MAXMEMORY = 1  # makes the store refuse sends
RESTART_FREE_BYTES = 8 << 20
WORTH_REWRITING_BYTES = 4 << 20
STOP_REWRITE_S = 2.0
STOP_WAIT_S = 2.5  # together with the drain and the rewrite, a clean stop takes at most 10 s


class EmbeddedStore:
    """One data folder and the Valkey that serves it on a unix socket (`url`)."""

    tls, durability, accepts_degraded = StoreTls(), "fsync", False  # a unix socket has no TLS

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        binary: str | os.PathLike[str] | None = None,
        *,
        min_free_bytes: int = MIN_FREE_BYTES,
        max_memory_bytes: int | None = None,
        orphan_wait_s: float = ORPHAN_WAIT_S,
        overrides: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        on_change: Callable[[Status], None] | None = None,
        back_off_s: tuple[float, float] = BACK_OFF_S,
        any_thread: bool = False,
    ) -> None:
        """`max_memory_bytes`: None means a share of this machine's memory."""
        self.data = Path(data_dir).absolute()
        self.status: Status = Status(StoreState.STOPPED)
        self.info: dict[str, str] = {}
        self.failed = asyncio.Event()
        self._binary = Path(binary) if binary is not None else None
        self._min_free_bytes = min_free_bytes
        self._max_memory_bytes = default_ceiling_bytes() if max_memory_bytes is None else max_memory_bytes
        self._orphan_wait_s = orphan_wait_s
        self._overrides = dict(overrides or {})
        self._env = dict(env or {})
        self._on_change = on_change
        self._back_off_s = back_off_s
        self._any_thread = any_thread
        self._lock = FolderLock(self.data)
        self._connection = SupervisorConnection(files.socket_path(self.data))
        self._child: subprocess.Popen[bytes] | None = None
        self._log_from = 0
        self._starting: asyncio.Task[None] | None = None  # from `begin` to `stop`
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._log = EventLog("dueline.store")
        self._extent = ExtentRecord(self.data, self._connection, self._log)

    @property
    def socket(self) -> Path:
        return self._connection.path

    @property
    def url(self) -> str:
        """The address for a client of the store."""
        return f"unix://{self.socket}"

    @property
    def binary(self) -> Path:
        return self._binary if self._binary is not None else files.default_binary()

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self.status.pid

    def begin(self) -> None:
        """Start in the background. `start` waits for it."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="store-start")

    async def start(self) -> None:
        """Lock the folder, start the store and wait until it serves, however long it loads.

        Raises FolderInUse, or EmbeddedError when the folder cannot be used or the store ends before it serves.
        """
        self.begin()
        assert self._starting is not None
        try:
            await asyncio.shield(self._starting)
        except BaseException as error:
            await self.stop()
            if isinstance(error, OSError):
                why = f"the data folder {self.data} cannot be used: {error.strerror or error}"
                raise EmbeddedError(why) from error
            raise

    async def _start(self) -> None:
        why_not = files.claim(self.data)
        if why_not is not None:
            raise EmbeddedError(why_not)
        if not os.access(self.binary, os.X_OK):
            raise EmbeddedError(f"{self.binary} is not a program that can be run (store.binary)")
        await self._lock.take(self._ask_orphan_to_end, self._orphan_wait_s)
        try:
            self._spawn()
        except DataLost as lost:
            self._become(StoreState.FAILED, str(lost))
            raise EmbeddedError(str(lost)) from None
        self._tell_accepted_loss()
        if not await self._until_ready():
            await self._refuse_start()
        self._tasks = [
            asyncio.create_task(self._supervise(), name="store-supervisor"),
            asyncio.create_task(self._watch_health(), name="store-health"),
            asyncio.create_task(self._watch_extent(), name="store-extent"),
        ]

    async def stop(self) -> None:
        """End the store cleanly: everything is on disk, the socket is gone, the folder is free."""
        starting, self._starting = self._starting, None
        ending = self._tasks if starting is None else [*self._tasks, starting]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._tasks = []
        if self._child is not None:
            if self._child.poll() is None and self.status.state is StoreState.READY:
                await self._rewrite_if_worth(STOP_REWRITE_S)
            if await self._end_child() == 0:  # otherwise the last write may be torn
                await self._extent.note_stopped()
        await self._connection.close()
        if self._lock.held:  # otherwise another server may own the folder
            files.tidy(self.data)
            self._lock.free()
        if self.status.state is not StoreState.FAILED:
            self._become(StoreState.STOPPED)

    async def until_ready(self) -> None:
        """Wait until the store serves (again). Raises EmbeddedError if it never will."""
        await self.until(StoreState.READY, StoreState.FAILED)
        if self.status.state is StoreState.FAILED:
            raise EmbeddedError(self.status.detail)

    async def until(self, *states: StoreState) -> Status:
        """Wait until the store is in one of these states."""
        while self.status.state not in states:
            await self._changed.wait()
        return self.status

    # --- the child --------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        """Start the child. Raises DataLost if data is missing in the folder."""
        self._extent.check()
        free = self._free_bytes()
        self._note_space(free)
        overrides = {**self._overrides, "maxmemory": self._maxmemory(free)}
        config, _ = files.prepare(self.data, overrides)
        self._log_from = files.log_size(self.data)
        self._child = subprocess.Popen(
            [str(self.binary), str(config)],
            cwd=self.data,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._env},
            pass_fds=(self._lock.store_fd,),
            start_new_session=True,
            preexec_fn=ends_with_parent(signal.SIGTERM, self._any_thread),
        )
        self._lock.name_store(self._child.pid)
        self._become(StoreState.STARTING, pid=self._child.pid)

    async def _until_ready(self) -> bool:
        """Wait while it starts and loads. False: it ended."""
        child = self._child
        assert child is not None
        wait_s, logged_s = 0.01, 0.0
        clock = asyncio.get_running_loop().time
        while child.poll() is None:
            try:
                self.info = await self._connection.info()
            except Loading as progress:
                self._become(StoreState.LOADING, f"loading, {progress}", pid=child.pid)
                if clock() - logged_s >= 1.0:
                    logged_s = clock()
                    self._log.info("the store is loading", progress=str(progress))
            except NotThere:
                pass
            else:
                await self._extent.note_loaded()
                self._become(StoreState.READY, pid=child.pid)
                return True
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, 0.2)
        return False

    async def _refuse_start(self) -> None:
        assert self._child is not None
        log = files.log_since(self.data, self._log_from)
        why = files.diagnose(log)
        if why is files.Exit.CORRUPT:
            message = self._damaged()
        elif why is files.Exit.DISK_FULL:
            message = f"the disk of {self.data} is full; the store cannot start"
        else:
            message = f"the store ended at start (exit {self._child.returncode}): {files.last_lines(log) or 'no log'}"
        self._become(StoreState.FAILED, message)
        raise EmbeddedError(message)

    async def _supervise(self) -> None:
        """Restart the child whenever it ends, until `stop` or until it is certain that it cannot run."""
        delay_s = self._back_off_s[0]
        while True:
            child = self._child
            assert child is not None
            born = asyncio.get_running_loop().time()
            code = await exit_of(child)
            await self._connection.close()
            log = files.log_since(self.data, self._log_from)
            why = files.diagnose(log)
            self._log.warning("the store ended", exit=code, last=files.last_lines(log, 2), again_in_s=delay_s)
            if why is files.Exit.CORRUPT:
                self._fail(self._damaged())
                return
            if why is files.Exit.DISK_FULL:
                await self._until_room()
            else:
                self._become(StoreState.DOWN, f"the store ended (exit {code})")
            if asyncio.get_running_loop().time() - born > 30:
                delay_s = self._back_off_s[0]
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, self._back_off_s[1])
            self.status = msgspec.structs.replace(self.status, restarts=self.status.restarts + 1)
            try:
                self._spawn()
            except DataLost as lost:
                self._fail(str(lost))
                return
            except (OSError, EmbeddedError) as error:  # no memory to fork, or no space for the config file: retried
                self._log.error("the store cannot be started", error=str(error))
                continue
            if await self._until_ready():
                self._log.info("the store is available again", restarts=self.status.restarts)

    def _damaged(self) -> str:
        return f"the append-only file in {self.data} is damaged; {files.repair_hint(self.data, self.binary)}"

    def _fail(self, message: str) -> None:
        self._become(StoreState.FAILED, message)
        self._log.error(message)
        self.failed.set()

    async def _until_room(self) -> None:
        self._become(StoreState.DISK_FULL, f"the disk of {self.data} is full, or does not accept writes")
        needed = min(RESTART_FREE_BYTES, self._min_free_bytes)
        while self._free_bytes() < needed:  # noqa: ASYNC110 - a file system sends no event when it has space
            await asyncio.sleep(1.0)

    async def _end_child(self) -> int:
        """End the child and return its exit code; 0: it wrote everything and ended by itself."""
        child = self._child
        assert child is not None
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(exit_of(child), STOP_WAIT_S)
            except TimeoutError:
                # Every acknowledged write is already synced, so a kill only makes the next start slower.
                self._log.warning("the store did not end in time and is killed", waited_s=STOP_WAIT_S)
                child.kill()
                await exit_of(child)
        self._child = None
        return child.returncode

    async def _ask_orphan_to_end(self) -> None:
        self._log.warning("the store of a dead server still runs on this folder; waiting for it to end")
        try:
            await asyncio.wait_for(self._connection.ask_to_end(), 1.0)
        except TimeoutError:
            pass  # it does not answer now; the parent-death signal may still end it

    # --- how much is on disk ----------------------------------------------------------------------------------------

    async def _watch_extent(self) -> None:
        while True:
            await asyncio.sleep(NOTE_EVERY_S)
            if self.status.state is not StoreState.READY:
                continue
            await self._extent.note_synced()
            if self._extent.missing_bytes != self.status.missing_bytes:
                self.status = msgspec.structs.replace(self.status, missing_bytes=self._extent.missing_bytes)
                self._tell()

    def _tell_accepted_loss(self) -> None:
        record = self._extent.recorded
        self.status = msgspec.structs.replace(
            self.status, lost_bytes=record.lost_bytes, accepted_at_ms=record.accepted_at_ms
        )
        if record.accepted_at_ms is not None:
            self._log.warning(accepted_loss(record.lost_bytes, record.accepted_at_ms))

    # --- health -----------------------------------------------------------------------------------------------------

    async def _watch_health(self) -> None:
        grown_at, size = asyncio.get_running_loop().time(), -1
        while True:
            await asyncio.sleep(HEALTH_EVERY_S)
            free = self._free_bytes()
            if free < self._min_free_bytes:
                self._note_space(free)
            if self._child is None or self.status.state not in (StoreState.READY, StoreState.DOWN):
                continue
            try:
                self.info = await self._connection.info()
                await self._apply_space(free)
                self._note_space(free)  # when there is room again, the store knows it first
            except (Loading, NotThere) as error:
                if self._child.poll() is None and self.status.state is StoreState.READY:
                    self._become(StoreState.DOWN, f"the store does not answer: {error}", pid=self._child.pid)
                    self._log.warning("the store is unavailable", detail=str(error))
                continue
            if self.status.state is not StoreState.READY:
                self._become(StoreState.READY, pid=self._child.pid)
                self._log.info("the store is available again", restarts=self.status.restarts)
            now = asyncio.get_running_loop().time()
            if self._number("aof_current_size") != size:
                grown_at, size = now, self._number("aof_current_size")
            elif now - grown_at >= QUIET_S:
                grown_at = now
                await self._rewrite_if_worth(0)

    def _number(self, name: str) -> int:
        return int(self.info.get(name, "0") or 0)

    def _free_bytes(self) -> int:
        try:
            room = os.statvfs(self.data)
        except OSError:
            return 0
        return room.f_bavail * room.f_frsize

    def _note_space(self, free_bytes: int) -> None:
        before, low = self.status.low_space, free_bytes < self._min_free_bytes
        self.status = msgspec.structs.replace(self.status, low_space=low, free_bytes=free_bytes)
        if low != before:
            self._tell()

    def _maxmemory(self, free_bytes: int) -> str:
        """The value of `maxmemory`. With little disk space it is 1 byte, so that the store refuses sends."""
        if free_bytes < self._min_free_bytes:
            return str(LOW_SPACE_MAXMEMORY)
        return self._overrides.get("maxmemory", str(self._max_memory_bytes))

    async def _apply_space(self, free_bytes: int) -> None:
        wanted, low = self._maxmemory(free_bytes), str(LOW_SPACE_MAXMEMORY)
        if (self.info.get("maxmemory") == low) != (wanted == low):
            await self._connection.call("CONFIG", "SET", "maxmemory", wanted)

    async def _rewrite_if_worth(self, wait_s: float) -> None:
        """Shrink the append-only file if it grew by 40 %, so that the next start is fast. Waits at most `wait_s`."""
        try:
            self.info = await self._connection.info()
            size, base = self._number("aof_current_size"), self._number("aof_base_size")
            if size < WORTH_REWRITING_BYTES or size < 1.4 * base or self.status.low_space:
                return
            await self._connection.call("BGREWRITEAOF")
            deadline = asyncio.get_running_loop().time() + wait_s
            while asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.05)
                self.info = await self._connection.info()
                if not self._number("aof_rewrite_in_progress") and not self._number("aof_rewrite_scheduled"):
                    return
        except (Loading, NotThere) as error:
            self._log.warning("the append-only file was not rewritten", error=str(error))

    def _become(self, state: StoreState, detail: str = "", pid: int | None = None) -> None:
        before = self.status
        self.status = msgspec.structs.replace(before, state=state, detail=detail, pid=pid)
        if self.status != before:
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self._on_change is not None:
            self._on_change(self.status)
