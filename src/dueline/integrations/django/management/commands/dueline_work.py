"""`manage.py dueline_work`: run the project's worker."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import import_string

from .....worker import Worker
from ...settings import current


class Command(BaseCommand):
    """Works until SIGTERM or Ctrl-C."""

    help = "Run handlers for due jobs until SIGTERM or Ctrl-C. Unfinished jobs are given back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "worker", nargs="?", help="Dotted path of the worker, like shop.tasks.worker; else DUELINE['WORKER']."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["worker"] or current().worker
        if path is None:
            raise CommandError("name the worker, such as shop.tasks.worker, or set DUELINE['WORKER']")
        try:
            worker = import_string(path)
        except ImportError as wrong:
            raise CommandError(str(wrong)) from wrong
        if not isinstance(worker, Worker):
            raise CommandError(f"{path} is not a Worker but {type(worker).__name__}")
        if not worker.topics:
            raise CommandError(f"{path} handles nothing: is the module with the handlers imported?")
        self.stderr.write(f"working on {', '.join(worker.topics)}")
        worker.run()
