"""A Flask extension: a client configured by the application, handlers in its context, and `flask dueline-work`.

    dueline = Dueline()                                # at the top of a module

    @dueline.handles("order.close")
    def close_order(order: int) -> None:
        current_app.logger.info("closing %s", order)   # inside the application's context

    def create_app() -> Flask:
        app = Flask(__name__)
        app.config["DUELINE_URL"] = "http://127.0.0.1:9277"
        dueline.init_app(app)
        return app

    close_order.send(7, delay="30m")                   # in a view
    flask --app shop dueline-work                      # the worker, as a process of its own

Config: DUELINE_URL (a server, redis://..., embedded:FOLDER), DUELINE_NAMESPACE, DUELINE_TOKEN. Missing values come from
the environment. The extension's worker belongs to the application passed to the last `init_app`.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from typing import Any

import click
from flask import Flask, current_app

from ..client.client import Client
from .contexts import ContextWorker

NAME = "dueline"


class Dueline(ContextWorker):
    """The extension: a Worker whose queue and context are those of the application."""

    def __init__(self, app: Flask | None = None, **options: Any) -> None:
        """`options`: those of a Worker, such as `threads=20`."""
        super().__init__(self._context, **options)
        self._app: Flask | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Use the application's config, and add the command `dueline-work` to it."""
        self._app = app
        app.extensions[NAME] = self
        config = app.config
        self.join_queue(config.get("DUELINE_URL"), config.get("DUELINE_NAMESPACE"), config.get("DUELINE_TOKEN"))
        app.cli.add_command(_work_command(self))

    @property
    def client(self) -> Client:
        """The HTTP client of the current application; each has its own. Its DUELINE_URL must be a server's URL."""
        app: Any = current_app
        cache: dict[str, Client] = app.extensions.setdefault("dueline_clients", {})
        if "client" not in cache:
            config = app.config
            cache["client"] = Client(
                config.get("DUELINE_URL"), config.get("DUELINE_NAMESPACE"), config.get("DUELINE_TOKEN")
            )
        return cache["client"]

    def _context(self) -> AbstractContextManager[Any]:
        if self._app is None:
            raise RuntimeError("the extension has no application: call init_app before the worker runs")
        return self._app.app_context()


def _work_command(extension: Dueline) -> click.Command:
    @click.command(
        "dueline-work", help="Run handlers for due jobs until SIGTERM or Ctrl-C. Unfinished jobs are given back."
    )
    def work() -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
        if not extension.topics:
            raise click.ClickException("nothing is handled: is the module with the handlers imported?")
        extension.run()

    return work
