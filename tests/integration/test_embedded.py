"""The embedded store as real processes: one server per folder, no orphans, restarts with all data, clear refusals."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio
import uvloop

from dueline.store.valkey.embedded import EmbeddedError, EmbeddedStore, FolderInUse, StoreState
from dueline.store.valkey.embedded_extent import accept

HOST = Path(__file__).with_name("embedded_host.py")


class Host:
    """A process that holds an embedded store on a folder."""

    def __init__(self, data: Path, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HOST), str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            text=True,
        )

    def says(self) -> list[str]:
        """Its next line that is for us (log lines are not), in words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.split(" ", 1)[0] in ("ready", "refused", "stopped"):
                return line.split()
        raise AssertionError("the host ended without a word")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    started: list[Host] = []
    yield started
    for host in started:
        host.kill()
        assert host.process.stdout is not None
        host.process.stdout.close()


def wait_gone(pid: int, timeout_s: float = 20) -> None:
    """Wait for a process that is not our child to end."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        assert ready, f"process {pid} still lives"
    finally:
        os.close(descriptor)


def client(store_url: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=store_url.removeprefix("unix://"), decode_responses=True)


async def with_store(store: EmbeddedStore) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(unix_socket_path=str(store.socket), decode_responses=True)


async def test_the_store_listens_on_a_private_socket_only_and_fsyncs_every_write(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "data")
    await store.start()
    try:
        async with await with_store(store) as valkey:
            names = "port appendonly appendfsync no-appendfsync-on-rewrite aof-load-truncated save maxmemory-policy"
            config = {name: (await valkey.config_get(name))[name] for name in names.split()}
            config["debug"] = str(await valkey.execute_command("CONFIG", "GET", "enable-debug-command"))
        config["modes"] = oct(stat.S_IMODE(store.data.stat().st_mode)) + oct(stat.S_IMODE(store.socket.stat().st_mode))
    finally:
        await store.stop()
    assert config == {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "debug": "{'enable-debug-command': 'no'}",
        "modes": "0o7000o700",
    }


async def test_a_second_server_on_the_folder_is_refused_at_once_with_the_pid(tmp_path: Path, hosts: list[Host]) -> None:
    first = Host(tmp_path)
    hosts.append(first)
    assert first.says()[0] == "ready"
    with pytest.raises(FolderInUse, match=rf"pid {first.process.pid};"):
        await EmbeddedStore(tmp_path).start()


def test_killing_the_server_ends_its_store(tmp_path: Path, hosts: list[Host]) -> None:
    host = Host(tmp_path)
    hosts.append(host)
    _, pid, _ = host.says()
    host.kill()
    wait_gone(int(pid))


def test_a_new_server_waits_for_the_store_of_a_dead_one_and_finds_its_data(tmp_path: Path, hosts: list[Host]) -> None:
    first = Host(tmp_path)
    hosts.append(first)
    _, pid, url = first.says()
    client(url).set("kept", "yes")
    os.kill(int(pid), signal.SIGSTOP)  # an orphan that cannot end yet
    first.kill()
    second = Host(tmp_path)
    hosts.append(second)
    assert second.process.stdout is not None
    ready, _, _ = select.select([second.process.stdout], [], [], 60)
    line = second.process.stdout.readline() if ready else ""
    assert "still runs" in line, "it must wait for the orphan, and say so"
    os.kill(int(pid), signal.SIGCONT)
    word, new_pid, url = second.says()
    assert (word, new_pid != pid, client(url).get("kept")) == ("ready", True, "yes")


def test_an_orphan_that_never_ends_is_named_and_the_server_refuses(tmp_path: Path, hosts: list[Host]) -> None:
    first = Host(tmp_path)
    hosts.append(first)
    _, pid, _ = first.says()
    os.kill(int(pid), signal.SIGSTOP)
    try:
        first.kill()
        second = Host(tmp_path, ORPHAN_WAIT_S="0.3")
        hosts.append(second)
        said = second.says()
        assert said[0] == "refused"
        assert f"pid {pid};" in " ".join(said)
    finally:
        os.kill(int(pid), signal.SIGCONT)
    wait_gone(int(pid))


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
async def test_a_killed_store_is_started_again_with_all_its_data(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    try:
        first = store.pid
        assert first is not None
        async with await with_store(store) as valkey:
            await valkey.set("kept", "yes")
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(30):
            await store.until(StoreState.DOWN)
            await store.until_ready()
        async with await with_store(store) as valkey:
            assert (await valkey.get("kept"), store.pid == first, store.status.restarts) == ("yes", False, 1)
    finally:
        await store.stop()


async def test_a_data_path_too_long_for_a_socket_gets_its_socket_in_the_runtime_folder(tmp_path: Path) -> None:
    data = tmp_path / ("deep-" * 20) / ("folder-" * 10)

    store = EmbeddedStore(data)
    await store.start()
    try:
        async with await with_store(store) as valkey:
            await valkey.ping()
        named = (data / "socket").read_text().strip() == str(store.socket)
        assert (named, data in store.socket.parents, stat.S_IMODE(store.socket.parent.stat().st_mode)) == (
            True,
            False,
            0o700,
        )
    finally:
        await store.stop()


async def test_a_folder_name_with_quotes_spaces_and_line_ends_is_only_a_name(tmp_path: Path) -> None:
    data = tmp_path / 'a "b"\nport 7000\n\\x ü'

    store = EmbeddedStore(data)
    await store.start()
    try:
        async with await with_store(store) as valkey:
            assert (await valkey.config_get("port"))["port"] == "0"
    finally:
        await store.stop()


def damage(data: Path) -> None:
    """Break the structure of the append-only file in its middle."""
    part = next((data / "appendonlydir").glob("*.incr.aof"))
    content = part.read_bytes()
    at = content.index(b"*3", len(content) // 2)
    part.write_bytes(content[:at] + b"@@" + content[at + 2 :])


async def test_a_damaged_file_is_explained_once_and_not_restarted_for_ever(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    async with await with_store(store) as valkey:
        for number in range(10):
            await valkey.set(f"key-{number}", "x" * 100)
    await store.stop()
    damage(tmp_path)
    store = EmbeddedStore(tmp_path)
    with pytest.raises(EmbeddedError, match=r"damaged.*--fix"):
        await store.start()
    assert store.status.state is StoreState.FAILED
    # The commands of the hint are exact: run as printed, they make the folder startable once the loss is accepted.
    command = store.status.detail.rsplit("To cut it off, run: ", 1)[1]
    repaired = await asyncio.to_thread(subprocess.run, ["bash", "-c", command], input=b"y\n", capture_output=True)
    assert repaired.returncode == 0
    with pytest.raises(EmbeddedError, match="dueline store accept"):
        await EmbeddedStore(tmp_path).start()
    accept(tmp_path)
    store = EmbeddedStore(tmp_path)
    await store.start()
    try:
        async with await with_store(store) as valkey:
            assert await valkey.get("key-0") == "x" * 100
    finally:
        await store.stop()


async def test_damage_found_at_a_restart_fails_instead_of_restarting(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    try:
        async with await with_store(store) as valkey:
            for number in range(10):
                await valkey.set(f"key-{number}", "x" * 100)
        damage(tmp_path)
        assert store.pid is not None
        os.kill(store.pid, signal.SIGKILL)
        await asyncio.wait_for(store.failed.wait(), 20)
        with pytest.raises(EmbeddedError, match="damaged"):
            await store.until_ready()
        assert store.status.state.value == "failed"
    finally:
        await store.stop()


async def test_below_the_watermark_writes_that_grow_are_refused_and_others_go_on(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path, min_free_bytes=1 << 60)
    await store.start()
    try:
        async with await with_store(store) as valkey:
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                await valkey.set("grow", "x")
            assert (store.status.low_space, str(await valkey.delete("grow"))) == (True, "0")
    finally:
        await store.stop()


def test_a_full_disk_is_a_state_that_ends_when_there_is_room(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a small file system")
    try:
        asyncio.run(_fill(disk))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def _fill(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"\0" * (8 << 20))
    store = EmbeddedStore(disk / "data", min_free_bytes=1 << 20)
    await store.start()
    acknowledged = 0
    try:
        async with await with_store(store) as valkey:
            try:
                while True:
                    await valkey.set(f"key-{acknowledged}", "x" * 60_000)
                    acknowledged += 1
            except (redis.exceptions.RedisError, OSError):
                pass
        assert (await asyncio.wait_for(store.until(StoreState.DISK_FULL), 20)).state is StoreState.DISK_FULL
        ballast.unlink()
        await asyncio.wait_for(store.until_ready(), 30)
        async with await with_store(store) as valkey:
            assert await valkey.exists(*(f"key-{number}" for number in range(acknowledged))) == acknowledged
    finally:
        await store.stop()


async def test_a_store_that_cannot_run_is_refused_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="ended at start"):
        await EmbeddedStore(tmp_path, overrides={"appendfsync": "perhaps"}).start()
    with pytest.raises(EmbeddedError, match=r"store\.binary"):
        await EmbeddedStore(tmp_path, binary=tmp_path / "nothing").start()


async def test_a_folder_with_other_peoples_files_is_neither_taken_nor_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(EmbeddedError, match="a folder of its own"):
        await EmbeddedStore(tmp_path).start()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


async def test_a_clean_stop_shrinks_a_file_that_has_grown(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    async with await with_store(store) as valkey:
        for _ in range(60):
            await valkey.set("same", "x" * 100_000)
    await store.stop()
    assert sum(part.stat().st_size for part in (tmp_path / "appendonlydir").iterdir()) < 1_000_000


async def test_stopping_twice_or_before_the_start_is_harmless_and_frees_the_folder(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.stop()
    await store.start()
    await store.stop()
    await store.stop()
    other = EmbeddedStore(tmp_path)
    await other.start()
    await other.stop()
    assert other.status.state is StoreState.STOPPED
