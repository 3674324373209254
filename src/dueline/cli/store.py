"""Commands on the data folder of an embedded store, while no server runs on it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from .exit_codes import FAILURE
from .fsck import DEFAULT_DATA, Data
from .jobs import Yes
from .output import Output, Printer
from .session import confirm, server_parts

ACCEPT_EXAMPLES = (
    "dueline store accept --data ./dueline-data",
    "dueline store accept --data /var/lib/dueline --yes -o json",
)


def accept(
    data: Data = None,
    yes: Yes = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Accept the loss of missing data, so that the server starts with the rest. Shows what is missing, then asks."""
    printer = Printer(output)
    with server_parts(printer):
        from ..store.valkey import embedded_extent as extents
        from ..store.valkey.embedded_lock import FolderInUse, FolderLock
    folder = (data or DEFAULT_DATA).absolute()
    if not (folder / extents.RECORD).exists():
        raise typer.BadParameter(f"{folder} is not the data folder of an embedded store: name it with --data")
    lock = FolderLock(folder)
    try:
        asyncio.run(lock.take(orphan_wait_s=0))
    except FolderInUse as in_use:
        printer.error(str(in_use), hint="stop that server first")
        raise typer.Exit(FAILURE) from in_use
    try:
        extents.check(folder)
        missing_bytes, aside, summary = 0, None, Text("nothing is missing", style="green")
    except extents.DataLost as lost:
        confirm(printer, f"Data is missing in {folder}: {lost.what}. Accept that its jobs are lost?", yes)
        missing_bytes, aside = lost.missing_bytes, extents.accept(folder)
        kept = f"\nfiles that the store cannot read were moved to {aside}" if aside is not None else ""
        summary = Text(f"accepted: {lost.what}{kept}", style="yellow")
    finally:
        lock.free()
    moved_to = None if aside is None else str(aside)
    printer.result(msgspec.json.encode({"accepted_bytes": missing_bytes, "moved_to": moved_to}), summary)
