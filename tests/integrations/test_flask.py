"""Flask: the extension, its config, handlers inside the application's context, and the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask import Flask, current_app

from dueline.integrations.flask import Dueline
from dueline.testing.queue import VirtualQueue
from dueline.testing.server import PrivateServer
from dueline.worker import Handle, TaskWorker

from .processes import running


def shop(**config: str) -> tuple[Flask, Dueline, list[tuple[str, int]], Handle[..., None]]:
    dueline = Dueline()
    closed: list[tuple[str, int]] = []

    @dueline.handles("order.close")
    def close(order: int) -> None:
        closed.append((current_app.name, order))

    class CloseSoon(TaskWorker):
        type = "order.close.soon"

        def invoke(self, params: int) -> None:
            closed.append((current_app.name, params))

    dueline.bind(CloseSoon)

    @dueline.handles("order.close.later")
    async def close_later(order: int) -> None:
        closed.append((current_app.name, order))

    app = Flask("shop")
    app.config.update(config)
    dueline.init_app(app)

    @app.post("/orders/<int:order>")
    def place(order: int) -> str:
        return close.send(order, id=f"close-{order}", delay="30m").result

    return app, dueline, closed, close


def test_a_view_sends_and_the_handler_runs_in_the_context_of_the_application(dueline_queue: VirtualQueue) -> None:
    app, dueline, closed, _ = shop()
    dueline_queue.work(dueline)
    http = app.test_client()
    assert [http.post("/orders/7").text for _ in range(2)] == ["created", "kept"]
    dueline_queue.client.send("order.close.later", 8, delay="30m")
    dueline_queue.client.send("order.close.soon", 9, delay="30m")
    dueline_queue.clock.advance("30m")
    assert sorted(closed) == [("shop", 7), ("shop", 8), ("shop", 9)]
    assert dueline_queue.recorder.failed() == []


def test_the_config_of_the_application_decides(dueline_server: PrivateServer) -> None:
    app, dueline, _, _ = shop(DUELINE_URL=dueline_server.url, DUELINE_NAMESPACE="shop")
    with app.app_context():
        assert app.extensions["dueline"] is dueline
        assert dueline.client is dueline.client
        dueline.client.send("t", 1)
        assert dueline.client.topic("t").counts.ready == 1
    assert app.test_client().post("/orders/7").text == "created"
    with dueline_server.client("shop") as client:
        assert client.get("order.close", "close-7").state == "scheduled"
    dueline.close()


def test_an_extension_without_an_application_says_so(dueline_queue: VirtualQueue) -> None:
    dueline = Dueline()

    @dueline.handles("t")
    def handle(body: int) -> None: ...

    dueline_queue.work(dueline)
    handle.send(1, max_attempts=1)
    [failed] = dueline_queue.recorder.failed()
    assert "init_app" in str(failed.error)
    with pytest.raises(RuntimeError, match="application context"):
        _ = dueline.client


def test_the_command_of_an_application_that_handles_nothing_says_so() -> None:
    app = Flask("shop")
    Dueline(app)
    ended = app.test_cli_runner().invoke(args=["dueline-work"])
    assert ended.exit_code == 1
    assert "nothing is handled" in ended.output


SHOP = """
from flask import Flask, current_app
from dueline.integrations.flask import Dueline

dueline = Dueline()

@dueline.handles("order.close")
def close(order: int) -> None:
    print("closed", order, "in", current_app.name)

def create_app():
    app = Flask("shop")
    app.config.from_prefixed_env("SHOP")
    dueline.init_app(app)
    return app
"""


def test_the_command_works_until_it_is_stopped(tmp_path: Path, dueline_server: PrivateServer) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    args = ["-m", "flask", "--app", "shop", "dueline-work"]
    with dueline_server.client() as client:
        client.send("order.close", 1)
        with running(tmp_path, args, SHOP_DUELINE_URL=dueline_server.url) as program:
            program.until("closed 1 in shop")
            assert program.end() == 0, program.lines
        assert client.topic("order.close").counts.done == 1
