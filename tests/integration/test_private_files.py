"""What another user may have prepared is refused in one line: folders of others, symbolic links in place of files."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.store.valkey.embedded import EmbeddedError, EmbeddedStore, StoreState
from dueline.store.valkey.embedded_files import make_private, open_private
from dueline.testing.process import free_port
from tests.kit.waiting import until
from tools.faults.server_process import ServerProcess

from .test_serve import refused, started

PRECIOUS = "precious\n"


def long(folder: Path) -> Path:
    """A data folder whose socket must stand in the runtime folder."""
    return folder / ("deep-" * 20) / ("folder-" * 10)


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A folder for sockets. Its path must be short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def serve(data: Path, *args: str, **env: str) -> str:
    """The one line that a start is refused with."""
    code, words = refused("--data", str(data), "--listen", f"127.0.0.1:{free_port()}", *args, **env)
    assert code == 1, words
    [line] = [line for line in words.splitlines() if not line.startswith("{")]  # its log is JSON
    assert line.startswith("dueline: "), words
    return line


@pytest.mark.parametrize("content", [PRECIOUS, None], ids=["there", "dangling"])
@pytest.mark.parametrize("name", ["store.lock", "valkey.conf", "store.log"])
async def test_a_symbolic_link_in_place_of_a_file_of_the_store_is_refused_and_not_followed(
    tmp_path: Path, name: str, content: str | None
) -> None:
    victim, link = linked(tmp_path, name, content)

    store = EmbeddedStore(link.parent)
    try:
        with pytest.raises(EmbeddedError, match=f"{link} is a symbolic link"):
            await store.start()
        assert (victim.read_text() if victim.exists() else None) == content
        link.unlink()
        await store.start()  # without the link it starts
    finally:
        await store.stop()


@pytest.mark.parametrize(
    ("name", "content"), [("server.lock", PRECIOUS), ("server.lock", None), ("store.log", PRECIOUS)]
)
def test_a_server_refuses_such_a_link_in_one_line(tmp_path: Path, name: str, content: str | None) -> None:
    victim, link = linked(tmp_path, name, content)
    assert f"{link} is a symbolic link" in serve(link.parent)
    assert (victim.read_text() if victim.exists() else None) == content


def linked(folder: Path, name: str, content: str | None) -> tuple[Path, Path]:
    """A file with this content, if any, and a link to it in a data folder."""
    victim, link = folder / "victim", folder / "data" / name
    link.parent.mkdir(mode=0o700)
    if content is not None:
        victim.write_text(content)
    link.symlink_to(victim)
    return victim, link


def test_the_file_that_names_a_distant_socket_is_not_followed_either(tmp_path: Path) -> None:
    victim, data = tmp_path / "victim", long(tmp_path)
    data.mkdir(parents=True, mode=0o700)
    victim.write_text(PRECIOUS)
    (data / "socket").symlink_to(victim)
    assert f"{data / 'socket'} is a symbolic link" in serve(data)
    assert victim.read_text() == PRECIOUS


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_runtime_folder_that_is_a_symbolic_link_is_refused_and_its_target_left_alone(
    tmp_path: Path, runtime: Path, workers: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    victim.chmod(0o755)
    (runtime / "dueline").symlink_to(victim)
    line = serve(long(tmp_path), "--workers", workers, XDG_RUNTIME_DIR=str(runtime))
    assert f"{runtime / 'dueline'} is a symbolic link" in line
    assert (victim.stat().st_mode & 0o777, list(victim.iterdir())) == (0o755, [])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_runtime_folder_of_another_user_is_refused_and_left_alone(
    tmp_path: Path, runtime: Path, workers: str
) -> None:
    (runtime / "dueline").mkdir()
    (runtime / "dueline").chmod(0o755)
    os.chown(runtime / "dueline", 65534, 65534)
    line = serve(long(tmp_path), "--workers", workers, XDG_RUNTIME_DIR=str(runtime))
    assert f"{runtime / 'dueline'} belongs to another user" in line
    assert (runtime / "dueline").stat().st_mode & 0o777 == 0o755


def test_files_and_folders_of_another_user_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir(mode=0o755)
    (tmp_path / "file").write_text(PRECIOUS)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    for use, name in ((make_private, "folder"), (open_private, "file")):
        with pytest.raises(EmbeddedError, match=f"{name} belongs to another user"):
            use(tmp_path / name)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755
    monkeypatch.undo()
    make_private(tmp_path / "folder")
    os.close(open_private(tmp_path / "file"))
    assert ((tmp_path / "folder").stat().st_mode & 0o777, (tmp_path / "file").read_text()) == (0o700, PRECIOUS)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_not_a_file_is_refused(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "valkey.conf")
    with pytest.raises(EmbeddedError, match=r"valkey\.conf is not a file"):
        open_private(tmp_path / "valkey.conf")


async def test_a_data_folder_may_be_a_symbolic_link_of_its_owner(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")

    async with started(ServerProcess(tmp_path / "data")):
        assert (tmp_path / "disk" / "valkey.conf").exists()


async def test_a_configuration_file_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text('[log]\nlevel = "debug"\n')
    (tmp_path / "dueline.toml").symlink_to(tmp_path / "real.toml")

    async with started(ServerProcess(tmp_path / "data", args=("--config", str(tmp_path / "dueline.toml")))) as (
        server,
        _,
    ):
        assert server.running


async def test_a_link_that_appears_while_it_runs_keeps_the_store_down_until_it_is_gone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text(PRECIOUS)

    store = EmbeddedStore(tmp_path / "data", back_off_s=(0.01, 0.05))
    await store.start()
    try:
        config = store.data / "valkey.conf"
        config.unlink()
        config.symlink_to(victim)
        assert store.pid is not None
        os.kill(store.pid, 9)
        await store.until(StoreState.DOWN)
        await until(lambda: store.status.restarts >= 3)
        assert (victim.read_text(), store.status.state) == (PRECIOUS, StoreState.DOWN)
        config.unlink()
        await asyncio.wait_for(store.until_ready(), 20)
    finally:
        await store.stop()
