"""The command `fsck`: read a whole store and name what is wrong in it. It changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.text import Text

from . import tables
from .output import Output, Printer
from .session import FAILURE

FSCK_EXAMPLES = (
    "dueline fsck --data ./dueline-data",
    "dueline fsck redis://127.0.0.1:6379/0",
    "dueline fsck --data ./dueline-data -o json",
)

DEFAULT_DATA = Path("dueline-data")
SHOWN = 50

Progress = Callable[[int, int | None], None]


def fsck(
    store: Annotated[
        str | None, typer.Argument(metavar="STORE_URL", help="The store, such as redis://host:6379/0.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The data folder of a stopped server.", show_default="./dueline-data")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="First part of all keys; default: the server's.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o")] = Output.TABLE,
) -> None:
    """Check a store: every job in exactly one place, every counter right. It only reads; exit 1 with findings."""
    printer = Printer(output)
    if store is not None and data is not None:
        raise typer.BadParameter("give a store URL or --data, not both")
    folder = None if store is not None else data or DEFAULT_DATA
    if folder is not None and not folder.is_dir():
        raise typer.BadParameter(f"there is no data folder {folder}: name it with --data, or give the store's URL")
    try:
        from ..store.valkey.fsck import fsck as check
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("dueline"):
            raise
        printer.error(
            "this command reads the store itself", hint='install dueline[server]: pip install "dueline[server]"'
        )
        raise typer.Exit(FAILURE) from missing
    with printer.progress() as bar:
        task = bar.add_task("reading the store", total=None)

        def progress(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        try:
            report = asyncio.run(_run(check, store, folder, prefix, progress))
        except Exception as wrong:
            if not _is_expected(wrong):
                raise
            printer.error(str(wrong) or type(wrong).__name__, hint=_hint(wrong))
            raise typer.Exit(FAILURE) from wrong
    show(printer, report)


def show(printer: Printer, report: Any) -> None:
    """Print the findings; exit 1 when there are any."""
    findings = list(report.findings)
    made = tables.table("#", "FINDING", right=("#",))
    for number, finding in enumerate(findings[:SHOWN], 1):
        tables.add(made, number, _text(finding))
    style = "bold red" if findings else "green"
    said = Text(f"{report.jobs} jobs read, {len(findings)} findings", style=style)
    raw = msgspec.json.encode({"jobs": report.jobs, "findings": findings}, enc_hook=str)
    printer.result(raw, Group(made, said) if findings else said, rows="findings")
    if findings:
        raise typer.Exit(FAILURE)


async def _run(check: Any, store: str | None, folder: Path | None, prefix: str | None, progress: Progress) -> Any:
    """Check a store that runs, or start the one of a data folder for as long as it takes."""
    extra = {} if prefix is None else {"prefix": prefix}
    if folder is None:
        return await check(store, progress=progress, **extra)
    from ..store.valkey.embedded import EmbeddedStore

    embedded = EmbeddedStore(folder)
    try:
        await embedded.start()
        return await check(embedded.url, progress=progress, **extra)
    finally:
        await embedded.stop()


def _text(finding: Any) -> str:
    return finding if isinstance(finding, str) else msgspec.json.encode(finding, enc_hook=str).decode()


def _is_expected(wrong: Exception) -> bool:
    """What a store, a folder or an address can do to us; anything else is a bug and shows itself."""
    import redis.exceptions

    from ..engine.errors import DuelineError
    from ..store.valkey.embedded import EmbeddedError
    from ..store.valkey.embedded_lock import FolderInUse

    known = (OSError, ValueError, redis.exceptions.RedisError, DuelineError, EmbeddedError, FolderInUse)
    return isinstance(wrong, known)


def _hint(wrong: Exception) -> str | None:
    in_use = type(wrong).__name__ == "FolderInUse"
    return "stop that server first, or give the URL of its store" if in_use else None
