"""The output of commands: data to stdout, everything else to stderr.

table   for people: aligned columns, colour only on a terminal, cells made safe to print; a list is at most as wide as
        the terminal, and 100 columns where there is none
json    the API's own object, byte for byte as the server wrote it
jsonl   one line per row of it (per job, topic, result)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress

LIST_WIDTH = 100  # columns of a list in a file or a pipe
WIDE = 10_000  # columns of other tables there: the details of one job are never wrapped


class Output(StrEnum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class Printer:
    """Writes results and notes. The console detects the terminal's colours and honours NO_COLOR. It is made when there
    is something to show to people: its library takes longer to load than a command with JSON output takes."""

    def __init__(self, output: Output) -> None:
        self.output = output

    @cached_property
    def out(self) -> Console:
        from rich.console import Console

        return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)

    @cached_property
    def err(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, highlight=False)

    def result(self, raw: bytes, table: RenderableType, rows: str | None = None) -> None:
        """Print one answer. `rows` names the list in it that jsonl splits into lines; None: the answer is one line."""
        if self.output is Output.TABLE:
            self.table(table)
        elif self.output is Output.JSONL and rows is not None:
            self.lines(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[rows])
        else:
            self.line(raw)

    def table(self, table: RenderableType) -> None:
        """Print a table. In a file or a pipe, its lines have no trailing spaces."""
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as captured:
            self.out.print(table)
        sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))
        sys.stdout.flush()

    def lines(self, array: bytes | msgspec.Raw) -> None:
        """Print every element of a JSON array on its own line, byte for byte."""
        for row in msgspec.json.decode(array, type=list[msgspec.Raw]):
            self.line(bytes(row))

    def line(self, raw: bytes) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(raw.rstrip(b"\n") + b"\n")
        sys.stdout.buffer.flush()

    def note(self, text: str) -> None:
        """Print a remark on stderr, except when the output is JSON."""
        if self.output is Output.TABLE:
            self._say((text, "dim"))

    def error(self, text: str, raw: bytes | None = None, hint: str | None = None) -> None:
        """Print an error on stderr: as text, or as the API's error object when the output is JSON."""
        if self.output is not Output.TABLE:
            body = raw or msgspec.json.encode({"error": {"code": "failed", "message": text, "field": None}})
            sys.stderr.write(body.decode("utf-8", "replace").rstrip("\n") + "\n")
            return
        self._say(("error: ", "bold red"), safe(text))
        if hint:
            self._say((hint, "dim"))

    def _say(self, *parts: str | tuple[str, str]) -> None:
        """Print text on stderr, each part with its style."""
        from rich.text import Text

        self.err.print(Text.assemble(*parts), soft_wrap=True)

    def progress(self) -> Progress:
        """A progress bar on stderr, shown only on a terminal."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.err,
            disable=not sys.stderr.isatty(),
            transient=True,
        )


def safe(text: str) -> str:
    """The text with control characters escaped, because the contents of a job must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def merged(raws: Iterable[bytes], rows: str) -> bytes:
    """Pages of one list as one object of the same shape, rows in order and byte for byte, without a cursor."""
    whole: dict[str, msgspec.Raw] = {}
    all_rows: list[msgspec.Raw] = []
    for raw in raws:
        page = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        all_rows += msgspec.json.decode(page[rows], type=list[msgspec.Raw])
        whole = {**page, **{name: value for name, value in whole.items() if name not in (rows, "next_cursor")}}
    whole[rows] = msgspec.Raw(msgspec.json.encode(all_rows))
    whole["next_cursor"] = msgspec.Raw(b"null")
    return msgspec.json.encode(whole)
