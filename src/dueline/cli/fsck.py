"""The command `fsck`: reads a whole store and reports inconsistencies. It changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Group
from rich.text import Text

from . import tables
from .exit_codes import FAILURE
from .output import Output, Printer
from .session import server_parts

if TYPE_CHECKING:
    from ..runtime.locations import StoreLocation
    from ..store.valkey.fsck import Report
    from ..store.valkey.tls import StoreTls

FSCK_EXAMPLES = (
    "dueline fsck --data ./dueline-data",
    "dueline fsck redis://127.0.0.1:6379/0",
    "dueline fsck --data ./dueline-data -o json",
)

DEFAULT_DATA = Path("dueline-data")
SHOWN = 50

Progress = Callable[[int, int | None], None]
Check = Callable[[str, str, Progress, "StoreTls"], Awaitable["Report"]]

StoreUrl = Annotated[
    str | None, typer.Argument(metavar="STORE_URL", help="The store, such as redis://127.0.0.1:6379/0.")
]
Data = Annotated[
    Path | None, typer.Option("--data", help="The data folder of a stopped server.", show_default="./dueline-data")
]
Prefix = Annotated[str, typer.Option("--prefix", help="First part of all keys (store.prefix of the server).")]


def fsck(
    store: StoreUrl = None,
    data: Data = None,
    prefix: Prefix = "dueline",
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Check a store: every job in exactly one place, every counter correct. Read-only; exit 1 if it finds errors."""
    printer = Printer(output)
    if store is not None and data is not None:
        raise typer.BadParameter("give a store URL or --data, not both")
    folder = None if store is not None else data or DEFAULT_DATA
    if folder is not None and not folder.is_dir():
        raise typer.BadParameter(f"there is no data folder {folder}: name it with --data, or give the store's URL")
    with server_parts(printer):
        from ..store.valkey.fsck import fsck as check

        place = store_location(store, folder)
    with printer.progress() as bar:
        task = bar.add_task("reading the store", total=None)

        def progress(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        try:
            report = asyncio.run(_run(check, place, prefix, progress))
        except Exception as wrong:
            if not is_expected(wrong):
                raise
            printer.error(str(wrong) or type(wrong).__name__, hint=advice(wrong))
            raise typer.Exit(FAILURE) from wrong
    show(printer, report)


def show(printer: Printer, report: Report) -> None:
    """Print the findings. Exit 1 if there are any."""
    findings = report.findings
    made = tables.Listing("#", "FINDING", right=("#",))
    for number, finding in enumerate(findings[:SHOWN], 1):
        made.add(number, finding)
    style = "bold red" if findings else "green"
    summary = Text(f"{report.jobs} jobs in {report.partitions} partitions read, {len(findings)} findings", style=style)
    printer.result(msgspec.json.encode(report), Group(made, summary) if findings else summary, rows="findings")
    if len(findings) > SHOWN:
        printer.note(f"the first {SHOWN} are shown; -o jsonl has all")
    if findings:
        raise typer.Exit(FAILURE)


async def _run(check: Check, location: StoreLocation, prefix: str, progress: Progress) -> Report:
    """Check a running store, or start the store of a data folder for the duration of the check."""
    try:
        await location.start()
        return await check(location.url, prefix, progress, location.tls)
    finally:
        await location.stop()


def store_location(store: str | None, folder: Path | None) -> StoreLocation:
    """The store at a URL, or that of a data folder."""
    from ..config.settings import Store
    from ..runtime.locations import location_of, store_at

    if store is None:
        return location_of(Store(data=str(folder)))
    try:
        return store_at(store, os.environ)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from wrong


def is_expected(wrong: Exception) -> bool:
    """Whether a bad store, folder or address can cause this error. Any other error is a bug and is not caught."""
    import redis.exceptions

    from ..engine.errors import DuelineError
    from ..store.valkey.embedded import EmbeddedError, FolderInUse

    known = (OSError, ValueError, redis.exceptions.RedisError, DuelineError, EmbeddedError, FolderInUse)
    return isinstance(wrong, known)


def advice(wrong: Exception) -> str | None:
    """What the user can do about an expected error."""
    in_use = type(wrong).__name__ == "FolderInUse"
    return "stop that server first, or give the URL of its store" if in_use else None
