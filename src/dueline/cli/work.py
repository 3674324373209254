"""The command `work`: runs a Python worker, or any program as the handler of a topic."""

from __future__ import annotations

import importlib
import logging
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..client import DuelineApiError
from ..client.address import DEFAULT_URL, named_url
from .exit_codes import FAILURE, USAGE
from .session import Namespace, TokenFile, read_token
from .values import duration

WORK_EXAMPLES = (
    "dueline work shop.tasks:worker",
    "dueline work emails -- ./send-mail.sh",
    "dueline work pictures --concurrency 4 --timeout 5m -- python3 shrink.py",
)


def work(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:WORKER|TOPIC", help="A Worker in a Python module; with a command, a topic."),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="Run this for every job: body on stdin, exit 0 = done."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Commands at a time; default 1.")
    ] = None,
    timeout: Annotated[
        int | None, typer.Option("--timeout", parser=duration, metavar="DURATION", help="Kill a command after this.")
    ] = None,
    lease: Annotated[
        int | None,
        typer.Option("--lease", parser=duration, metavar="DURATION", help="Default 30s; renewed while a command runs."),
    ] = None,
    grace: Annotated[
        int | None,
        typer.Option("--grace", parser=duration, metavar="DURATION", help="Wait this long when stopping; default 20s."),
    ] = None,
    prefetch: Annotated[
        int | None,
        typer.Option("--prefetch", min=0, help="Jobs to lease ahead while commands are quick; default 0."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="DUELINE_URL",
            help=f"A server, a store (redis://) or embedded:FOLDER. Overrides a Worker's own URL, which overrides "
            f"DUELINE_URL. Default: {DEFAULT_URL}.",
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option("--health", metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics of this worker here."),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete schedules of this Worker's name that are no longer in its code."),
    ] = False,
    namespace: Namespace = None,
    token_file: TokenFile = None,
) -> None:
    """Run handlers for due jobs until SIGTERM or Ctrl-C. Unfinished jobs are given back.

    If the command exits with 0, the job is done; with 65, it is dead (rejected); with any other code, it is retried by
    its retry policy. The command gets DUELINE_JOB_ID, DUELINE_TOPIC, DUELINE_ATTEMPT and other variables.
    """
    from ..worker.log import shown_log

    logging.basicConfig(level=logging.INFO, handlers=[shown_log("%(asctime)s %(levelname)s %(message)s")])
    token = read_token(token_file)
    if command:
        if prune:
            raise typer.BadParameter("--prune needs MODULE:WORKER: a command declares no schedules")
        worker = _of_command(
            target, command, concurrency or 1, timeout, lease, grace, prefetch or 0, url, namespace, token
        )
    else:
        if any(given is not None for given in (concurrency, timeout, lease, grace, prefetch)):
            raise typer.BadParameter(
                "--concurrency, --timeout, --lease, --grace and --prefetch need a command; a Worker sets its own values"
            )
        worker = _named(target)
        worker.join_queue(None, None, token, keep=True)  # DUELINE_TOKEN_FILE; the worker reads the other variables
        options = {name: value for name, value in (("url", url), ("namespace", namespace)) if _typed(context, name)}
        worker.join_queue(
            options.get("url"), options.get("namespace"), token if _typed(context, "token_file") else None
        )
    try:
        if health is not None:
            worker.show_health(health)
        if prune:
            worker.prune_schedules()
        worker.run()
    except (DuelineApiError, ModuleNotFoundError, ValueError) as wrong:
        print(f"dueline: {wrong}", file=sys.stderr)
        raise typer.Exit(FAILURE) from None


def _typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, rather than by the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _named(target: str) -> Any:
    """The worker that MODULE:WORKER names, from the current folder or Python's path."""
    from ..worker import Worker

    module, _, name = target.partition(":")
    if not module or not name:
        raise typer.BadParameter(f'"{target}" is not MODULE:WORKER; for a topic add -- and a command')
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            _report_import(module, missing)  # the module exists, but a module that it imports does not
            raise typer.Exit(FAILURE) from None
        raise typer.BadParameter(f"there is no module {missing.name} here ({Path.cwd()})") from None
    except Exception as wrong:
        _report_import(module, wrong)
        raise typer.Exit(FAILURE) from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Worker):
        raise typer.BadParameter(f"{name} in {module} is not a Worker")
    return found


def _report_import(module: str, wrong: Exception) -> None:
    """Print an error in the user's own code, its own frame first."""
    from ..worker.frames import own_frame, trace_text

    frame = own_frame(wrong)
    where = "" if frame is None else f" at {frame}"
    print(f"dueline: {module} cannot be imported{where}: {type(wrong).__name__}: {wrong}", file=sys.stderr)
    print(trace_text(wrong), file=sys.stderr)


def _of_command(
    topic: str,
    command: list[str],
    concurrency: int,
    timeout: int | None,
    lease: int | None,
    grace: int | None,
    prefetch: int,
    url: str | None,
    namespace: str | None,
    token: str | None,
) -> Any:
    """A worker that runs `command` for every job of `topic`."""
    from ..worker import Worker
    from ..worker.command import Command
    from ..worker.worker import GRACE, LEASE

    if shutil.which(command[0]) is None:
        print(f"dueline: there is no program {command[0]}", file=sys.stderr)
        raise typer.Exit(USAGE)
    url = named_url(url)
    inside = {"DUELINE_URL": url, **({"DUELINE_NAMESPACE": namespace} if namespace else {})}
    runs = Command(command, inside)
    try:
        worker = Worker(
            url,
            namespace=namespace,
            token=token,
            lease=LEASE if lease is None else f"{lease}ms",
            grace=GRACE if grace is None else f"{grace}ms",
            prefetch=prefetch,
        )
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    worker.handles(topic, concurrency=concurrency, timeout=None if timeout is None else f"{timeout}ms")(runs.run)
    worker.on_stop(runs.stop)
    return worker
