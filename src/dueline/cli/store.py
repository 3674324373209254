"""The command `store accept`: an operator accepts that data is lost, so that servers continue with the rest.

STORE_URL   a store in use that holds less than its servers have seen (store.valkey.acceptance)
--data      the folder of a stopped embedded store whose file has lost bytes
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from .exit_codes import FAILURE
from .fsck import DEFAULT_DATA, Data, Prefix, StoreUrl, advice, is_expected, store_location
from .jobs import Yes
from .output import Output, Printer
from .session import confirm, server_parts

if TYPE_CHECKING:
    from pathlib import Path

    from ..runtime.locations import StoreLocation

ACCEPT_EXAMPLES = (
    "dueline store accept redis://127.0.0.1:6379/0",
    "dueline store accept redis://127.0.0.1:6379/0 --yes -o json",
    "dueline store accept --data ./dueline-data",
)
SHOWN = 50


def accept(
    store: StoreUrl = None,
    data: Data = None,
    prefix: Prefix = "dueline",
    yes: Yes = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Accept that data of a store is lost, so that servers continue with the rest. Shows what is missing, then asks."""
    printer = Printer(output)
    if store is not None and data is not None:
        raise typer.BadParameter("give a store URL or --data, not both")
    if store is None:
        _accept_folder(printer, (data or DEFAULT_DATA).absolute(), yes)
        return
    with server_parts(printer):
        location = store_location(store, None)
    try:
        asyncio.run(_accept_store(printer, location, prefix, yes))
    except Exception as wrong:
        if not is_expected(wrong):
            raise
        printer.error(str(wrong) or type(wrong).__name__, hint=advice(wrong))
        raise typer.Exit(FAILURE) from wrong


async def _accept_store(printer: Printer, location: StoreLocation, prefix: str, yes: bool) -> None:
    from ..runtime.access import StoreAccess, tries_for
    from ..runtime.locations import ExternalStore
    from ..store.valkey import acceptance
    from ..store.valkey.reader import StoreReader

    async def register(topics: list[tuple[str, str]]) -> None:
        # not replicated: an operator may accept a loss while replicas are missing
        access = StoreAccess(
            ExternalStore(location.url, location.tls), tries_for(10), prefix=prefix, namespace_ids=None
        )
        await access.start()
        try:
            await access.store.directory.register(topics)
        finally:
            await access.stop()

    reader = StoreReader(location.url, location.tls)
    try:
        missing = await acceptance.find_missing(reader, prefix)
        lines = missing.lines()
        more = [f"and {len(lines) - SHOWN:,} more (-o json has all)"] if len(lines) > SHOWN else []
        for line in [*lines[:SHOWN], *more]:
            printer.note(line)
        nothing = "Nothing is missing here. Accept this store for servers that knew other data?"
        confirm(printer, "Accept that these jobs are lost?" if lines else nothing, yes)
        await acceptance.accept(reader, prefix, missing, register)
    finally:
        await reader.stop()
    partitions = [
        {
            "namespace": one.partition.namespace,
            "topic": one.partition.topic,
            "partition": one.partition.number,
            "had_number": one.had or None,
            "number": one.number,
        }
        for one in missing.partitions
    ]
    raw = msgspec.json.encode({"directory_lost": missing.is_directory_lost, "partitions": partitions})
    number = f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'}"
    summary = f"accepted: {number}" + (" and the directory" if missing.is_directory_lost else "")
    printer.result(raw, Text(f"{summary}. Servers continue within 5 seconds", style="yellow" if lines else "green"))


def _accept_folder(printer: Printer, folder: Path, yes: bool) -> None:
    with server_parts(printer):
        from ..store.valkey import embedded_extent as extents
        from ..store.valkey.embedded_lock import FolderInUse, FolderLock
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
