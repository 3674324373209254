"""`dueline serve`: the process model.

    workers 1   one process: supervisor of the embedded store, engine, front
    workers N   the parent opens the sockets and supervises; N worker processes serve (server.workers)

How it stops: see `shutdown`.

    exit 0  SIGTERM or SIGINT, after draining
         1  address or folder in use, store refused, store damaged
         2  unusable configuration
Only the ready line goes to stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .._version import __version__
from ..certificate_files import BadCertificate
from ..config.durability import durability_of
from ..config.reach import open_addresses
from ..config.settings import Settings
from ..event_log import EventLog
from ..runtime.locations import ExternalStore, StoreLocation, location_of, tls_refusal
from ..store.valkey.embedded import EmbeddedError, EmbeddedStore, FolderInUse, Status, StoreState
from ..store.valkey.embedded_files import make_private, runtime_folder
from ..store_address import parse_store_url
from ..telemetry import logs
from .certificate import refusal as certificate_refusal
from .listeners import CannotListen, elsewhere, opened, url_of
from .shutdown import Signals, lame_duck_s, unless
from .start_checks import StartRefused, log_callers, push_refusal
from .workers import Orders, Workers

if TYPE_CHECKING:
    from .app import App

ENOUGH_DESCRIPTORS = 1 << 20
STATUS_FILE = "store.json"
BAD_CONFIG = 2


def run(settings: Settings, notes: Sequence[str] = ()) -> int:
    """Serve until a signal. Returns the exit code; errors go to stderr. `notes` are remarks about the settings."""
    logs.configure(settings.log.level, settings.log.format)
    log = EventLog("dueline.server")
    for note in notes:
        log.warning(note)
    for name in ("DUELINE_TOKEN", "DUELINE_TOKEN_FILE"):
        if os.environ.get(name):
            log.warning(f"{name} has no effect on a server: it is for clients")
    unprotected = open_addresses(settings)
    if unprotected:
        log.warning(f"others can reach this server (server.insecure): {', '.join(unprotected)}")
    log_callers(settings)
    allow_descriptors()
    why = push_refusal(settings) or certificate_refusal(settings) or tls_refusal(settings.store)
    if why is not None:
        return _refuse(settings, why, BAD_CONFIG)
    serving = _serve_alone if settings.server.workers == 1 else _serve_with_workers
    try:
        with opened(settings) as listeners:
            return _run_loop(serving(settings, listeners))
    except (CannotListen, StartRefused, EmbeddedError) as error:  # EmbeddedError: from meeting_folder
        return _refuse(settings, str(error))


def refuse(message: str, log_format: str, code: int) -> int:
    """Report why the server does not start, in the log's format. Returns the exit code."""
    logs.refuse(message, log_format)
    return code


def work(status_fd: int, *listener_fds: int) -> int:
    """The main function of a worker process (server.workers)."""
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    logs.configure(orders.settings.log.level, orders.settings.log.format, always={"worker": orders.index})
    with contextlib.ExitStack() as stack, os.fdopen(status_fd, "w") as status:
        listeners = [stack.enter_context(socket.socket(fileno=number)) for number in listener_fds]
        return _run_loop(_work(orders, listeners, lambda line: print(line, file=status, flush=True)))


def allow_descriptors() -> None:
    """Raise the limit of open files as far as the system allows. Each connection needs one, and the usual default is
    1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_DESCRIPTORS)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            pass  # keep the default


def announce_ready(settings: Settings, listeners: list[socket.socket]) -> None:
    """Print the ready line, which people and scripts wait for."""
    url, durability = url_of(settings, listeners[0]), durability_of(settings.store)
    store = "embedded" if settings.store.url is None else parse_store_url(settings.store.url).shown
    data = {"data": settings.store.data} if settings.store.url is None else {}
    text = f"(store {store}, durability {durability}{', data ' if data else ''}{data.get('data', '')}"
    logs.announce(
        f"dueline {__version__} ready on {url} {text}{elsewhere(settings, listeners)})",
        settings.log.format,
        **{"version": __version__, "url": url, "store": store, "durability": durability, **data},
    )


# --- one process --------------------------------------------------------------------------------------------------


async def _serve_alone(settings: Settings, listeners: list[socket.socket]) -> int:
    signals = Signals()
    signals.install()
    location = location_of(settings.store)
    app: App | None = None
    try:
        if isinstance(location, EmbeddedStore):
            location.begin()
            await asyncio.sleep(0)  # its process starts now, while the rest of the server is loaded
        app = _loaded_app()(settings, location)
        if app.certificate is not None:
            signals.on_hangup(app.certificate.reload)
        await app.listen(listeners)
        await unless(signals.stop, app.open())
        if not signals.stop.is_set():
            announce_ready(settings, listeners)
            await _until_stop(signals, location)
            await _lame_duck(settings, signals, app)
        return _verdict(settings, location)
    except BadCertificate as error:
        return _refuse(settings, str(error), BAD_CONFIG)
    except (FolderInUse, EmbeddedError, StartRefused) as error:
        return _refuse(settings, str(error))
    finally:
        await (location.stop() if app is None else app.stop(signals.hasten))


# --- parent and workers -------------------------------------------------------------------------------------------


async def _serve_with_workers(settings: Settings, listeners: list[socket.socket]) -> int:
    signals = Signals()
    signals.install()
    with meeting_folder() as folder:
        location = location_of(settings.store, on_change=lambda status: _write_status(folder, status))
        workers = Workers(settings, listeners, location.url, folder)
        if settings.server.tls.cert is not None:
            signals.on_hangup(workers.reload)
        starting: asyncio.Task[None] | None = None
        try:
            if isinstance(location, EmbeddedStore):
                # Start the workers as soon as the store's process runs, so that they answer "loading" while it loads.
                starting = asyncio.create_task(location.start())
                spawned = asyncio.create_task(location.until(StoreState.STARTING, StoreState.LOADING, StoreState.READY))
                await asyncio.wait((starting, spawned), return_when=asyncio.FIRST_COMPLETED)
                spawned.cancel()
                if starting.done():
                    starting.result()
            if not signals.stop.is_set():
                workers.start()
                await unless(signals.stop, _until_serving(starting, workers))
            if not signals.stop.is_set():
                announce_ready(settings, listeners)
                await _until_stop(signals, location, workers)
            if workers.refused is not None and workers.refused.done():
                return _refuse(settings, workers.refused.result())
            return _verdict(settings, location)
        except (FolderInUse, EmbeddedError, StartRefused) as error:
            return _refuse(settings, str(error))
        finally:
            for listener in listeners:  # refuse new clients at once instead of letting them wait in the backlog
                listener.close()
            await workers.stop(signals.again, lame_duck_s(settings) + settings.server.drain_ms / 1000)
            if starting is not None and not starting.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
            await location.stop()


@contextlib.contextmanager
def meeting_folder() -> Generator[Path]:
    """A private folder for this server's processes, named by its pid. Folders of killed servers are removed."""
    base = runtime_folder()
    try:
        make_private(base)
    except OSError as error:
        raise StartRefused(f"the runtime folder {base} cannot be used: {error.strerror or error}") from error
    for other in base.glob("server-*"):
        if not Path(f"/proc/{other.name.removeprefix('server-')}").exists() and Path("/proc/self").exists():
            shutil.rmtree(other, ignore_errors=True)
    folder = base / f"server-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    make_private(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _until_serving(starting: asyncio.Task[None] | None, workers: Workers) -> None:
    """Wait until the store and all workers serve. Raises the store's error, or StartRefused with a worker's reason."""
    assert workers.refused is not None
    ready = asyncio.create_task(workers.until_ready())
    wanted: list[asyncio.Future[Any]] = [ready] if starting is None else [ready, starting]
    try:
        while wanted:
            done, _ = await asyncio.wait((*wanted, workers.refused), return_when=asyncio.FIRST_COMPLETED)
            if workers.refused in done:
                raise StartRefused(workers.refused.result())
            for task in done:
                task.result()
            wanted = [task for task in wanted if not task.done()]
    finally:
        ready.cancel()


async def _work(orders: Orders, listeners: list[socket.socket], say: Callable[[str], None]) -> int:
    signals = Signals()
    signals.install()
    settings, folder = orders.settings, Path(orders.folder)
    location = location_of(settings.store) if settings.store.url is not None else _ParentStore(orders.store_url, folder)
    app = _loaded_app()(settings, location, orders.index, folder)
    if app.certificate is not None:
        signals.on_hangup(app.certificate.reload)
    try:
        await app.listen(listeners)
        await unless(signals.stop, app.open())
        if not signals.stop.is_set():
            say("ready")
            await signals.stop.wait()
            await _lame_duck(settings, signals, app)
        return 0
    except StartRefused as error:
        say(f"refused {error}")
        return 1
    except BadCertificate as error:  # the files were good when the server started: the parent tries again
        return _refuse(settings, str(error), BAD_CONFIG)
    finally:
        await app.stop(signals.hasten)


class _ParentStore(ExternalStore):
    """The embedded store of the parent process, for a worker."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, durability="fsync")
        self._folder = folder

    @property
    def status(self) -> Status:
        return _read_status(self._folder)


def _write_status(folder: Path, status: Status) -> None:
    """Write the embedded store's state for the workers. The file is replaced atomically: no reader sees half of it."""
    fresh = folder / f"{STATUS_FILE}.new"
    try:
        fresh.write_bytes(msgspec.json.encode(status))
        fresh.replace(folder / STATUS_FILE)
    except OSError as error:
        EventLog("dueline.server").warning("the store's state was not written", error=str(error))


def _read_status(folder: Path) -> Status:
    try:
        return msgspec.json.decode((folder / STATUS_FILE).read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError):
        return Status(StoreState.STARTING)


# --- shared -------------------------------------------------------------------------------------------------------


async def _until_stop(signals: Signals, location: StoreLocation, workers: Workers | None = None) -> None:
    """Wait for a signal, or until the store or a worker has failed for good."""
    waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(signals.stop.wait())]
    if isinstance(location, EmbeddedStore):
        waiting.append(asyncio.ensure_future(location.failed.wait()))
    if workers is not None and workers.refused is not None:
        waiting.append(workers.refused)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for future in waiting:
        future.cancel() if future is not getattr(workers, "refused", None) else None


async def _lame_duck(settings: Settings, signals: Signals, app: App) -> None:
    """After a signal, report not ready for a while before the drain. Skipped if the store has failed for good."""
    wait_s = lame_duck_s(settings)
    if wait_s > 0 and signals.stop.is_set():
        app.announce_stop()
        EventLog("dueline.server").info("stopping: not ready, still serving", drains_in_s=wait_s)
        await signals.lame_duck(wait_s)


def _verdict(settings: Settings, location: StoreLocation) -> int:
    status = location.status
    return 0 if status is None or status.state is not StoreState.FAILED else _refuse(settings, status.detail)


def _refuse(settings: Settings, message: str, code: int = 1) -> int:
    return refuse(message, settings.log.format, code)


def _loaded_app() -> type[App]:
    """Load all parts of the server, without garbage collection: modules leave hardly any garbage."""
    gc.disable()
    from .app import App

    # Loaded modules live forever, so freeze them. Requests leave few cycles, so collect less often than by default.
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()
    return App


def _run_loop(main: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ModuleNotFoundError:  # not available on every platform
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
