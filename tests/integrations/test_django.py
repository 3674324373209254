"""Django: settings, handlers with good connections, sends on commit, and the command."""

from __future__ import annotations

import io
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import django
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import override_settings

from dueline.testing.queue import VirtualQueue
from dueline.testing.server import PrivateServer
from dueline.worker import Worker

from .processes import running

if not settings.configured:
    settings.configure(
        INSTALLED_APPS=["dueline.integrations.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        DUELINE={"URL": "http://127.0.0.1:1", "NAMESPACE": "shop"},
        USE_TZ=True,
    )
    django.setup()

from dueline.integrations.django import DjangoWorker, client, send_on_commit
from dueline.integrations.django.settings import DjangoSettings, current


@pytest.fixture
def orders() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, state TEXT)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE orders")


def states() -> dict[int, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT number, state FROM orders ORDER BY number")
        return dict(cursor.fetchall())


def insert(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s, 'open')", [number])


def shop() -> tuple[DjangoWorker, object]:
    worker = DjangoWorker()

    @worker.handles("order.close")
    def close(number: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE orders SET state = 'closed' WHERE number = %s", [number])

    return worker, close


def test_the_setting_is_checked_and_names_what_is_wrong() -> None:
    assert current() == DjangoSettings(url="http://127.0.0.1:1", namespace="shop")
    assert client().url == "http://127.0.0.1:1"
    first = client()
    assert client() is first
    with override_settings(DUELINE={"URL": "http://127.0.0.1:2"}):
        assert client().url == "http://127.0.0.1:2"
    for wrong, message in (
        ({"ULR": "x"}, "did you mean 'URL'"),
        ({"URL": 7}, r"DUELINE\['URL'\] must be a string"),
        ("http://127.0.0.1:1", "dictionary"),
    ):
        with override_settings(DUELINE=wrong), pytest.raises(ImproperlyConfigured, match=message):
            current()
    with override_settings(DUELINE=None):
        assert current() == DjangoSettings()


def test_a_job_is_sent_when_the_transaction_is_committed_and_not_when_it_is_rolled_back(
    orders: None, dueline_queue: VirtualQueue
) -> None:
    worker, close = shop()
    dueline_queue.work(worker)
    with transaction.atomic():
        insert(1)
        send_on_commit(close, 1, id="close-1", delay="30m")
        assert dueline_queue.recorder.sent() == []
    with transaction.atomic():
        insert(2)
        send_on_commit(close, 2, id="close-2", delay="30m")
        transaction.set_rollback(True)
    assert [(job.id, job.delay_ms) for job in dueline_queue.recorder.sent()] == [("close-1", 1_800_000)]
    dueline_queue.clock.advance("30m")
    assert states() == {1: "closed"}


def test_in_a_test_handlers_see_the_transaction_of_the_test(orders: None, dueline_queue: VirtualQueue) -> None:
    worker, _ = shop()
    dueline_queue.work(worker)
    with transaction.atomic():
        insert(1)
        dueline_queue.client.send("order.close", 1, delay="30m")
        dueline_queue.clock.advance("30m")
        assert states() == {1: "closed"}
        assert dueline_queue.recorder.failed() == []
        transaction.set_rollback(True)
    assert states() == {}


def test_old_connections_are_closed_around_a_handler_in_its_own_thread(
    monkeypatch: pytest.MonkeyPatch, dueline_queue: VirtualQueue
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("dueline.integrations.django.work.close_old_connections", lambda: seen.append("closes"))
    worker = DjangoWorker()

    @worker.handles("t", max_attempts=1)
    def handle(body: str) -> None:
        seen.append(body)
        raise ZeroDivisionError

    dueline_queue.work(worker)
    dueline_queue.client.send("t", "works", max_attempts=1)
    assert seen == ["closes", "works", "closes"]


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("tasks_of_this_test")
    module.__dict__.update(idle=Worker(), number=7)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for args, message in (
        ([], "name the worker"),
        (["no.such.module"], "no.such|No module"),
        (["tasks_of_this_test.number"], "is not a Worker but int"),
        (["tasks_of_this_test.idle"], "handles nothing"),
    ):
        with pytest.raises(CommandError, match=message):
            call_command("dueline_work", *args, stderr=io.StringIO())


PROJECT = {
    "manage.py": """
        import os, sys
        os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
        from django.core.management import execute_from_command_line
        execute_from_command_line(sys.argv)
    """,
    "shop/__init__.py": "",
    "shop/settings.py": """
        import os
        SECRET_KEY = "only for a test"
        INSTALLED_APPS = ["dueline.integrations.django"]
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
        DUELINE = {"URL": os.environ["SHOP_QUEUE"], "WORKER": "shop.tasks.worker"}
    """,
    "shop/tasks.py": """
        from django.db import connection
        from dueline.integrations.django import DjangoWorker

        worker = DjangoWorker()

        @worker.handles("order.close")
        def close(number: int) -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT %s", [number])
                print("closed", cursor.fetchone()[0])
    """,
}


def test_the_command_works_until_it_is_stopped(tmp_path: Path, dueline_server: PrivateServer) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(line[8:] for line in text.splitlines()))
    with dueline_server.client() as client:
        client.send("order.close", 1, id="a")
        with running(tmp_path, ["manage.py", "dueline_work"], SHOP_QUEUE=dueline_server.url) as program:
            program.until("closed 1")
            client.send("order.close", 2, delay="200ms")
            program.until("closed 2")
            assert program.end() == 0, program.lines
        assert client.topic("order.close").counts.done == 2
