"""`dueline serve --ouqiang-config FILE`: the original's own file, read as it read it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
import redis

from dueline.config.load import ConfigError, load
from dueline.config.settings import Dialects, Server, Settings, Store
from dueline.dialects.ouqiang.config_file import read
from dueline.dialects.ouqiang.settings import OuqiangSettings
from dueline.dialects.spec import Unreadable
from dueline.server.listeners import addresses
from dueline.testing.process import free_port

from ...integration.serve_kit import typed
from ...kit.valkey import PrivateValkey
from ..kit import NOWHERE, RunningServer, now_ms, serve
from .kit import DONE, Ouqiang

SAMPLE = """\ufeff; a comment
bind_address = 127.0.0.1:5920   ; http server监听地址
# another one\u3000
bucket_size=3
bucket_name = dq_bucket_%d
queue_name: dq_queue_%s
queue_block_timeout = '7'
redis.host = 10.0.0.1:6380
redis.db = 4
redis.password = `p@s;s#/w`
redis.max_idle = 10
redis.read_timeout = 180000
colour = blue
[section]
bind_address = 1.2.3.4:5
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "delay-queue.conf"
    file.write_text(text, encoding="utf-8")
    return file


def test_every_key_of_the_original_is_taken_or_reported(tmp_path: Path) -> None:
    file = written(tmp_path, SAMPLE)
    found = read(file)
    assert {path: value for path, (value, _) in found.values.items()} == {
        "dialects.ouqiang.listen": "127.0.0.1:5920",
        "dialects.ouqiang.hold_ms": 7000,
        "store.url": "redis://:p%40s%3Bs%23%2Fw@10.0.0.1:6380/4",
    }
    assert found.notes == (
        f"{file}: ignored: bucket_size, bucket_name, queue_name, redis.max_idle, redis.read_timeout "
        "(there are no buckets, and connections are managed internally)",
        f"{file}: unknown keys, ignored: colour",
    )


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("bind_address =\nqueue_block_timeout =", {"dialects.ouqiang.hold_ms": 178_000}),
        ("queue_block_timeout = soon", {"dialects.ouqiang.hold_ms": 178_000}),
        ("queue_block_timeout = 1.5", {"dialects.ouqiang.hold_ms": 178_000}),
        ("queue_block_timeout = 0", {"dialects.ouqiang.hold_ms": 178_000}),
        ("queue_block_timeout = 100000", {"dialects.ouqiang.hold_ms": 300_000}),
        ("bind_address = :9300", {"dialects.ouqiang.listen": "0.0.0.0:9300"}),
        ('bind_address = "localhost:9300" # here', {"dialects.ouqiang.listen": "localhost:9300"}),
        ("redis.max_idle = 1\nredis.read_timeout = 9\nredis.other = 1", {}),
        ("redis.host =", {"store.url": "redis://127.0.0.1:6379/1"}),
        ('redis.password = ""\nredis.db = two', {"store.url": "redis://127.0.0.1:6379/1"}),
        ("redis.host = '[::1]:6379'", {"store.url": "redis://[::1]:6379/1"}),
    ],
)
def test_an_empty_value_or_a_number_that_is_none_means_the_originals_default(
    tmp_path: Path, text: str, values: dict[str, object]
) -> None:
    found = read(written(tmp_path, text))
    assert {path: value for path, (value, _) in found.values.items()} == values
    embedded = "no redis.host, redis.db or redis.password: jobs are kept in the embedded store"
    assert any(embedded in note for note in found.notes) == ("store.url" not in values)


def test_a_hold_that_we_cannot_do_is_reported(tmp_path: Path) -> None:
    for number, taken in ((0, 178), (-1, 178), (301, 300)):
        notes = read(written(tmp_path, f"redis.db=1\nqueue_block_timeout={number}")).notes
        assert [f"queue_block_timeout = {number}: taken as {taken}" in note for note in notes] == [True]


@pytest.mark.parametrize("text", ["no delimiter here", "= value", "bucket_size 3"])
def test_a_file_that_cannot_be_read_is_refused_in_the_originals_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unreadable, match=r"^无法解析配置文件#.*line 2: .*--config"):
        read(written(tmp_path, f"bucket_size=3\n{text}\n"))


def test_flags_win_over_variables_over_this_file_over_the_toml_file(tmp_path: Path) -> None:
    toml = tmp_path / "dueline.toml"
    toml.write_text(
        '[store]\nurl = "redis://toml"\n[dialects.ouqiang]\nlisten = "127.0.0.1:1"\nhold_ms = 1\nnamespace = "n"\n'
    )
    ini = read(written(tmp_path, "bind_address=127.0.0.1:2\nqueue_block_timeout=2\nredis.host=ini:2\n"))
    env = {"DUELINE_DIALECTS__OUQIANG__HOLD_MS": "3"}
    assert load({"store.url": "redis://flag"}, env, toml, [ini]) == Settings(
        store=Store(url="redis://flag"),
        dialects=Dialects(ouqiang=OuqiangSettings(listen="127.0.0.1:2", hold_ms=3, namespace="n")),
    )
    assert load({}, {}, toml, [ini]).store.url == "redis://ini:2/1"
    assert load({}, {"DUELINE_STORE__URL": "redis://env"}, toml, [ini]).store.url == "redis://env"


def test_an_address_that_others_can_reach_is_refused_with_the_name_of_the_originals_key(tmp_path: Path) -> None:
    ini = read(file := written(tmp_path, "bind_address = 0.0.0.0:9999"))
    with pytest.raises(ConfigError) as refused:
        load(foreign=[ini])
    assert str(refused.value).startswith(f"bind_address in {file} = 0.0.0.0:9999: others could reach this address")
    assert "--insecure" in str(refused.value)
    assert load({"server.insecure": True}, foreign=[ini]).dialects.ouqiang.listen == "0.0.0.0:9999"


def test_on_our_own_default_port_there_is_one_listener_for_all(tmp_path: Path) -> None:
    ini = read(written(tmp_path, "bind_address = 0.0.0.0:9277"))
    settings = load({"server.insecure": True}, foreign=[ini])
    assert settings.server == Server(listen="0.0.0.0:9277", insecure=True)
    [(address, names)] = addresses(settings).items()
    assert (address, "ouqiang" in names, "native" in names) == ("0.0.0.0:9277", True, True)
    said = load({"server.insecure": True, "server.listen": "127.0.0.1:9300"}, foreign=[ini])
    assert list(addresses(said)) == ["127.0.0.1:9300", "0.0.0.0:9277"]


async def test_a_server_is_started_with_nothing_but_the_originals_file(ouqiang: Ouqiang) -> None:
    """Its listener, its Redis with password and database, its hold time; and only its five paths at that address."""
    store, port = PrivateValkey(port=free_port(), options=("--requirepass", "p@s;s#/w")), free_port()
    await asyncio.to_thread(store.start)
    lines = (
        f"bind_address = 127.0.0.1:{port}",
        "bucket_size = 5",
        "queue_block_timeout = 1",
        f"redis.host = 127.0.0.1:{store.port}",
        "redis.db = 3",
        "redis.password = `p@s;s#/w`",
    )
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), "\n".join(lines))
        served = await serve(Path(folder) / "unused", args=["--ouqiang-config", str(file)])
        try:
            text = "\n".join(served.server.output)
            assert "ignored: bucket_size" in text
            assert f", ouqiang on http://127.0.0.1:{port})" in text
            assert f"(store redis://127.0.0.1:{store.port}/3, durability standard" in text
            await _spoken_there_only(served, port)
            with redis.Redis(port=store.port, db=3, password="p@s;s#/w") as client:
                assert client.dbsize() > 0
            assert not (Path(folder) / "unused").exists()
        finally:
            await served.stop()
            await asyncio.to_thread(store.stop)


async def _spoken_there_only(served: RunningServer, port: int) -> None:
    q, main, before_ms = Ouqiang(served, served.client(port)), Ouqiang(served), now_ms()
    assert await q.ask("pop", topic="t") == DONE
    assert now_ms() >= before_ms + 1000
    await q.push("t", "one", 3600)
    for path in ("nothing", "v1/info", "camellia/delayQueue/getMsg", "push/", ""):
        answer = await q.raw(path, b"{}")
        assert (answer.status, answer.body) == (404, b"404 page not found\n"), path
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert (await main.raw("get", b'{"id":"one"}')).status == 404, "also spoken at the main address"
    assert await main.counts("t") == {**NOWHERE, "scheduled": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ("无法解析配置文件#", "No such file", "--ouqiang-config takes")),
        ("bucket_size 3", ("无法解析配置文件#", "line 1")),
        ("bind_address = 0.0.0.0:9277", ("bind_address in ", "others could reach", "--insecure")),
        ("bind_address = 9277", ("bind_address", "HOST:PORT")),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_start_with_exit_2(
    tmp_path: Path, text: str | None, words: tuple[str, ...]
) -> None:
    file = tmp_path / "absent.conf" if text is None else written(tmp_path, text)
    ended = typed("serve", "--data", str(tmp_path / "data"), "--ouqiang-config", str(file))
    assert (ended.exit_code, [word for word in words if word not in ended.stderr]) == (2, []), ended.stderr
    assert not (tmp_path / "data").exists()
