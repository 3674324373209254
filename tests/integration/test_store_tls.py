"""TLS towards the store, with a real redis-server: the life of a job, what is refused and why, and renewed files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from msgspec.structs import replace
from typer.testing import CliRunner

from dueline import Client, LeasedJob
from dueline.cli.main import build
from dueline.engine.errors import Unavailable
from dueline.engine.job import Partition
from dueline.engine.store import Code
from dueline.integrations.mounted import MountedServer
from dueline.runtime.access import StoreAccess
from dueline.runtime.locations import ExternalStore, store_at
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.store import ValkeyStore, WrongStore
from dueline.store.valkey.tls import StoreTls
from dueline.store.valkey.witness import Replication
from dueline.testing.process import free_port
from dueline.worker.direct import DirectQueue
from tests.kit.store import item
from tests.kit.tls_redis import Pair, TlsRedis, missing
from tests.kit.waiting import until
from tools.faults.server_process import ServerProcess

from .test_serve import refused

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

SOON_S = 20.0
NOT_KNOWN = "the store's certificate is not signed by an authority that is "
OTHER_NAME = "the store's certificate is for another "
DEMANDS = "the store demands a client certificate: set store.tls.cert and store.tls.key"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRedis]:
    made = TlsRedis(tmp_path_factory.mktemp("tls"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def demanding(store: TlsRedis) -> Iterator[TlsRedis]:
    """The store while it demands a client certificate."""
    store.command("CONFIG", "SET", "tls-auth-clients", "yes")
    yield store
    store.command("CONFIG", "SET", "tls-auth-clients", "no")


def with_client(store: TlsRedis, pair: Pair | None = None) -> StoreTls:
    pair = pair or store.client
    return replace(store.tls, cert=str(pair.cert), key=str(pair.key))


async def opened(url: str, tls: StoreTls) -> str:
    """Open a store with one try: "ready", or why not. Any error that a later try might heal is raised."""

    def never(error: Unavailable, _elapsed_s: float) -> float:
        raise error

    access = StoreAccess(ExternalStore(url, tls), never)
    try:
        await access.start()
        return "ready"
    except WrongStore as error:
        return str(error)
    finally:
        await access.stop()


def waits(store: TlsRedis, topic: str) -> bool:
    """Whether a pull waits for jobs of this topic, so that a send wakes it."""
    return f"/{topic}/" in str(store.command("PUBSUB", "SHARDCHANNELS"))


def typed(*words: str, **env: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process; the latter without its line ends."""
    done = CliRunner().invoke(build(words), words, env=env)
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


# --- the whole life -----------------------------------------------------------------------------------------------


async def test_a_job_lives_its_whole_life_over_tls_and_wakes_a_parked_poll(
    store: TlsRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUELINE_STORE__TLS__CA", str(store.ca))
    server = ServerProcess(tmp_path, args=("--workers", "2"), env=store.env, store_url=store.url)
    await server.start()
    sender = DirectQueue(store.url)
    try:
        assert f"(store {store.url}, durability standard)" in next(line for line in server.output if "ready on" in line)
        with Client(f"http://127.0.0.1:{server.port}") as client:
            poll = asyncio.create_task(asyncio.to_thread(client.pull, "life", wait="20s"))
            await until(lambda: waits(store, "life"))
            sent = await sender.send("life", {"n": 1}, delay="20ms")  # only a wake-up can tell the server
            [job] = await poll
            assert (job.id, job.json()) == (sent.id, {"n": 1})
            assert (await asyncio.to_thread(client.ack, job)).ok
            assert (await asyncio.to_thread(client.get, "life", sent.id)).state == "done"
    finally:
        await sender.close()
        await server.stop()


def test_commands_and_fsck_on_the_store_read_the_variables(store: TlsRedis) -> None:
    code, stdout, stderr = typed("topics", "--url", store.url, "-o", "json", **store.env)
    assert (code, stdout[:1]) == (0, "{"), stderr
    code, stdout, stderr = typed("fsck", store.url, **store.env)
    assert (code, "0 findings" in stdout) == (0, True), stderr
    for words in (("topics", "--url", store.url), ("fsck", store.url)):
        code, stdout, stderr = typed(*words)
        assert (code, stdout, NOT_KNOWN in stderr) == (1, "", True), stderr


async def test_a_mounted_server_uses_its_settings(store: TlsRedis) -> None:
    async with MountedServer(store=store.url, env=store.env) as server:
        assert server.settings.store.tls == store.tls


async def test_a_cluster_is_reached_over_tls(tmp_path: Path) -> None:
    options = ("--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", str(free_port()))
    node = TlsRedis(tmp_path, options=options)
    node.start()
    try:
        node.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        await until(lambda: "cluster_state:ok" in str(node.command("CLUSTER", "INFO")))
        url = node.url.replace("rediss", "rediss+cluster")
        tls = replace(node.tls, server_name="store.test")  # the nodes name each other by address
        partition = Partition("n", "t")
        store = ValkeyStore(url, tls=tls)
        await store.start()
        await store.watch(partition)
        [sent] = await store.send(partition, [item("a")])
        assert (sent.code, waits(node, "t")) == (Code.CREATED, True)
        await store.stop()
        assert (await fsck(url, tls=tls)).jobs == 1
        with pytest.raises(Unavailable) as untrusted:
            await ValkeyStore(url).start()
        assert NOT_KNOWN in untrusted.value.message
    finally:
        node.stop()


async def test_sentinels_a_primary_and_its_replica_are_reached_over_tls(tmp_path: Path) -> None:
    """At durability `replicated`, so that the witness, too, uses TLS."""
    folders = [tmp_path / name for name in ("primary", "replica", "sentinel")]
    for folder in folders:
        folder.mkdir()
    tls_only = ("--tls-replication", "yes")
    on_tls = (*tls_only, "--appendonly", "no")  # a replica does not stop while it writes its first file
    primary = TlsRedis(folders[0], options=on_tls)
    replica = TlsRedis(folders[1], options=(*on_tls, "--replicaof", f"127.0.0.1 {primary.port}"))
    sentinel = TlsRedis(folders[2], options=tls_only, watched=primary.port)
    replica.authority = sentinel.authority = primary.authority
    try:
        for one in (primary, replica, sentinel):
            one.start()
        url = sentinel.url.replace("rediss", "rediss+sentinel") + "/jobs"
        tls = replace(primary.tls, server_name="store.test")  # the sentinels name the primary by address
        partition = Partition("n", "t")
        store = ValkeyStore(url, tls=tls, replication=Replication(), patience_s=SOON_S)
        await store.start()
        await store.watch(partition)
        [sent] = await store.send(partition, [item("a")])
        assert (sent.code, waits(primary, "t")) == (Code.CREATED, True)
        await store.stop()
        assert (await fsck(url, tls=tls)).jobs == 1
        assert NOT_KNOWN in await opened(url, StoreTls())
    finally:
        for one in (sentinel, replica, primary):
            one.stop()


# --- what is refused, after one try -------------------------------------------------------------------------------


async def test_a_certificate_of_an_unknown_authority_is_refused(store: TlsRedis, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    assert await opened(store.url, replace(store.tls, ca=str(other))) == f"{NOT_KNOWN}in store.tls.ca ({other})"
    assert await opened(store.url, StoreTls()) == f"{NOT_KNOWN}known to the system; set store.tls.ca"
    assert await opened(store.url, store.tls) == "ready"


async def test_a_certificate_for_another_name_is_refused_unless_that_name_is_expected(store: TlsRedis) -> None:
    by_address = store.url.replace("localhost", "127.0.0.1")
    said = await opened(by_address, store.tls)
    hint = "certificate is not valid for '127.0.0.1'. Use its name in store.url, or set store.tls.server_name"
    assert (said.startswith(OTHER_NAME), said.endswith(hint)) == (True, True), said
    assert await opened(by_address, replace(store.tls, server_name="store.test")) == "ready"
    assert (await opened(store.url, replace(store.tls, server_name="other.test"))).startswith(OTHER_NAME)


async def test_an_expired_certificate_is_refused(store: TlsRedis, tmp_path: Path) -> None:
    old = Pair(tmp_path, "old")
    old.issue(store.authority, "localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    store.show(old)
    try:
        assert await opened(store.url, store.tls) == "the store's certificate has expired"
    finally:
        store.show(store.server)
    assert await opened(store.url, store.tls) == "ready"


async def test_a_client_certificate_that_the_store_demands_is_given_or_asked_for(
    demanding: TlsRedis, tmp_path: Path
) -> None:
    foreign = Pair(tmp_path, "foreign")
    foreign.issue(trustme.CA(), "client.test")

    async def settled(tls: StoreTls) -> str:
        """The store's reason may be lost with the connection. Then a later try tells it."""
        async with asyncio.timeout(SOON_S):
            while True:
                try:
                    return await opened(demanding.url, tls)
                except Unavailable:
                    continue

    assert await settled(demanding.tls) == DEMANDS
    text = "the store does not know the authority of the client certificate (store.tls.cert)"
    assert await settled(with_client(demanding, foreign)) == text
    assert await opened(demanding.url, with_client(demanding)) == "ready"
    code, _, stderr = await asyncio.to_thread(typed, "topics", "--url", demanding.url, **demanding.env)
    assert (code, DEMANDS in stderr) == (1, True), stderr


async def test_a_port_without_tls_is_told_from_a_store_that_is_down() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"-ERR unknown command\r\n")

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as plain:
        url = f"rediss://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
        assert (await opened(url, StoreTls())).startswith("the store does not speak TLS on this port")
    with pytest.raises(Unavailable):
        await opened(url, StoreTls())


def test_a_server_whose_store_shows_a_wrong_certificate_ends_with_one_line(store: TlsRedis) -> None:
    for args in ((), ("--workers", "2")):
        code, said = refused("--listen", "127.0.0.1:0", "--store", store.url, *args)
        last = said.rstrip().split("\n")[-1]
        assert (code, last) == (1, f"dueline: {NOT_KNOWN}known to the system; set store.tls.ca"), said


# --- files that cannot be used ------------------------------------------------------------------------------------


BROKEN: dict[str, tuple[Callable[[TlsRedis, Pair, Path], object], str]] = {
    "no authority": (lambda _, __, ca: ca.unlink(), "store.tls.ca: {ca}: No such file or directory"),
    "not an authority": (lambda _, __, ca: ca.write_text("hello"), "store.tls.ca: {ca} is not a certificate in PEM"),
    "no certificate": (lambda _, pair, __: pair.cert.unlink(), "store.tls.cert: {cert}: No such file or directory"),
    "not a certificate": (
        lambda _, pair, __: pair.cert.write_text("hello"),
        "store.tls.cert: {cert} is not a certificate in PEM format",
    ),
    "no key": (lambda _, pair, __: pair.key.unlink(), "store.tls.key: {key}: No such file or directory"),
    "another key": (
        lambda store, pair, _: pair.key.write_bytes(store.client.key.read_bytes()),
        "store.tls.key: {key} is not the key of the certificate {cert}",
    ),
    "a key for all": (lambda _, pair, __: pair.key.chmod(0o644), "store.tls.key: {key} can be read by other users"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_used_is_refused_before_anything_connects(
    store: TlsRedis, tmp_path: Path, name: str
) -> None:
    pair, ca = Pair(tmp_path, "client"), tmp_path / "ca.pem"
    pair.issue(store.authority, "client.test")
    store.authority.cert_pem.write_to_path(str(ca))
    env = {
        f"DUELINE_STORE__TLS__{key}": str(file) for key, file in (("CA", ca), ("CERT", pair.cert), ("KEY", pair.key))
    }
    assert store_at(store.url, env).tls == StoreTls(ca=str(ca), cert=str(pair.cert), key=str(pair.key))
    spoil, text = BROKEN[name]
    spoil(store, pair, ca)
    with pytest.raises(ValueError) as wrong:
        store_at(store.url, env)
    expected = text.format(ca=ca, cert=pair.cert, key=pair.key)
    assert str(wrong.value).startswith(expected)
    with pytest.raises(ValueError) as mounted:
        MountedServer(store=store.url, env=env)
    assert str(mounted.value) == str(wrong.value)


def test_such_a_file_is_exit_code_2_of_the_server_and_the_command_line(store: TlsRedis) -> None:
    text = "store.tls.ca: /none.pem: No such file or directory"
    code, said = refused("--listen", "127.0.0.1:0", "--store", store.url, DUELINE_STORE__TLS__CA="/none.pem")
    assert (code, said) == (2, f"dueline: {text}\n")
    for words in (("topics", "--url", store.url), ("fsck", store.url)):
        code, _, stderr = typed(*words, DUELINE_STORE__TLS__CA="/none.pem")
        assert (code, "store.tls.ca: /none.pem: No such file" in stderr) == (2, True), stderr


# --- without checks -----------------------------------------------------------------------------------------------


async def test_a_certificate_that_is_not_checked_is_reported_at_every_start_and_by_doctor(
    store: TlsRedis, tmp_path: Path
) -> None:
    env = {"DUELINE_STORE__TLS__VERIFY": "false"}
    server = ServerProcess(tmp_path, env=env, store_url=store.url.replace("localhost", "127.0.0.1"))
    await server.start()
    try:
        assert sum("the store's certificate is not checked" in line for line in server.output) == 1
        for url, more in ((f"http://127.0.0.1:{server.port}", {}), (store.url, env)):
            _, stdout, stderr = await asyncio.to_thread(typed, "doctor", "--url", url, "-o", "json", **more)
            found = [one for one in json.loads(stdout)["findings"] if "store_unverified" in one["detail"]]
            assert [one["level"] for one in found] == ["warn"], stderr
    finally:
        await server.stop()


# --- renewed files ------------------------------------------------------------------------------------------------


async def test_a_store_that_is_restarted_with_a_certificate_of_a_new_authority_is_used_again(
    store: TlsRedis, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path, env=store.env, store_url=store.url)
    await server.start()
    try:
        with Client(f"http://127.0.0.1:{server.port}") as client:
            await asyncio.to_thread(client.send, "renewed", 1, id="before", delay="1h")

            async def poll() -> list[LeasedJob]:
                return list(await asyncio.to_thread(client.pull, "renewed", wait="20s"))

            parked = asyncio.create_task(poll())
            await until(lambda: waits(store, "renewed"))
            await asyncio.to_thread(store.stop)
            store.authority = trustme.CA()
            await asyncio.to_thread(store.start)
            await until(lambda: waits(store, "renewed"))
            await asyncio.to_thread(client.fire, "renewed", "before")
            assert [job.id for job in await parked] == ["before"]
    finally:
        await server.stop()
