"""Commands on many jobs: sending a file, calls by filter, and answers with one result per job."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import typer
from msgspec import Raw
from rich.table import Table

from ..api import answers as r
from ..client import DuelineApiError, calls
from ..client.calls import Answer, Call
from . import tables
from .exit_codes import FAILURE, USAGE
from .output import Output
from .session import Session, exit_code, reported

BATCH_JOBS = 500
BATCH_BYTES = 2 << 20  # half of a server's default limit, because each line grows by its id and a comma
SHOWN_REFUSALS = 10


class Line(msgspec.Struct, frozen=True):
    """One job of a file: its line number, and its JSON with an id (with `merge`: an item id)."""

    number: int
    id: str
    job: dict[str, Raw]
    size_bytes: int


class BadLine(Exception):
    """A line that is not a job; carries its number."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"line {number}: {message}")
        self.number = number


def read_lines(source: Iterable[bytes]) -> Iterator[Line]:
    """The jobs of a file of JSON lines. Empty lines are skipped. Everything except an added id is unchanged."""
    for number, text in enumerate(source, 1):
        if not text.strip():
            continue
        try:
            job = msgspec.json.decode(text, type=dict[str, Raw])
            yield _line(number, job, len(text))
        except (msgspec.DecodeError, RecursionError) as wrong:
            raise BadLine(number, str(wrong)) from wrong


def _line(number: int, job: dict[str, Raw], size_bytes: int) -> Line:
    """The job with an id (with `merge`: an item id), so that it is safe to send it twice."""
    merge = msgspec.json.decode(job["merge"], type=dict[str, Raw] | None) if "merge" in job else None
    if merge is None:
        id = msgspec.json.decode(job["id"], type=str) if "id" in job else calls.new_id()
        return Line(number, id, {**job, "id": Raw(msgspec.json.encode(id))}, size_bytes)
    item_id = msgspec.json.decode(merge["item_id"], type=str) if "item_id" in merge else calls.new_id()
    named = {**merge, "item_id": msgspec.json.encode(item_id)}
    return Line(
        number,
        item_id,
        {**job, "merge": Raw(msgspec.json.encode({name: Raw(value) for name, value in named.items()}))},
        size_bytes,
    )


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines grouped into calls within the server's limits."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and size + line.size_bytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += line.size_bytes
        if len(batch) == BATCH_JOBS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def send_file(session: Session, topic: str, source: Path) -> None:
    """Send every line of a file. Results are printed as they arrive; the first error determines the exit code."""
    if str(source) == "-":
        _send_stream(session, topic, sys.stdin.buffer, None)
        return
    try:
        with source.open("rb") as stream:
            total = sum(1 for _ in stream)
            stream.seek(0)
            _send_stream(session, topic, stream, total)
    except OSError as wrong:
        raise typer.BadParameter(f"cannot read {source}: {wrong.strerror}", param_hint="--from") from wrong


def _send_stream(session: Session, topic: str, stream: BinaryIO, total: int | None) -> None:
    counts: Counter[str] = Counter()
    refused: list[tuple[Line, r.Refusal]] = []
    collected: list[Raw] = []
    batch: list[Line] = []
    last = 0
    with session.printer.progress() as progress:
        task = progress.add_task(f"sending to {topic}", total=total)
        try:
            for batch in batches(read_lines(stream)):
                answer = session.call(calls.send_many(topic, [line.job for line in batch]))
                rows = msgspec.json.decode(answer.raw, type=dict[str, Raw])["results"]
                for line, item in zip(batch, answer.value.results, strict=True):
                    counts[item.error.code if item.error else item.result or "sent"] += 1
                    if item.error is not None:
                        refused.append((line, item.error))
                if session.printer.output is Output.JSONL:
                    session.printer.lines(rows)
                elif session.printer.output is Output.JSON:
                    collected += msgspec.json.decode(rows, type=list[Raw])
                last = batch[-1].number
                progress.update(task, completed=last)
        except BadLine as wrong:
            session.printer.error(str(wrong), hint=_resume_hint(last))
            raise typer.Exit(USAGE) from wrong
        except DuelineApiError as error:
            session.printer.note(_resume_hint(last))
            raise reported(session.printer, error, _place(error, batch)) from error
    _show_sent(session, counts, refused, collected)


def _place(error: DuelineApiError, batch: list[Line]) -> str:
    """The place in the file of an error of a whole call: the line of the item it names, else the lines of the call."""
    item = re.match(r"\[(\d+)\]", error.field or "")
    if item is not None and int(item[1]) < len(batch):
        return f"line {batch[int(item[1])].number}"
    return f"lines {batch[0].number} to {batch[-1].number}"


def _resume_hint(last: int) -> str:
    """Which lines were stored before the error, and how to continue without sending a job twice."""
    if last == 0:
        return "nothing was sent"
    rest = f"tail -n +{last + 1} FILE | dueline send TOPIC --from -"
    return f"lines 1 to {last} are stored; fix the file and continue with: {rest}"


def _show_sent(
    session: Session, counts: Counter[str], refused: list[tuple[Line, r.Refusal]], collected: list[Raw]
) -> None:
    if session.printer.output is Output.JSON:
        session.printer.line(msgspec.json.encode({"results": collected}))
    elif session.printer.output is Output.TABLE:
        made = tables.Listing("RESULT", "JOBS", right=("JOBS",))
        for result, number in sorted(counts.items()):
            made.add(result, number)
        session.printer.table(made)
    for line, refusal in refused[:SHOWN_REFUSALS]:
        session.printer.note(f"line {line.number} ({line.id}): {refusal.message}")
    if refused:
        raise typer.Exit(exit_code(calls.refusal_error(refused[0][1])))


def show_outcomes(session: Session, answer: Answer[r.Outcomes]) -> None:
    """Print one result per job. The first error determines the exit code."""
    session.printer.result(answer.raw, tables.outcomes(answer.value.results), rows="results")
    for outcome in answer.value.results:
        if outcome.error is not None:
            raise reported(session.printer, calls.refusal_error(outcome.error, outcome.id), outcome.id)


def by_filter(
    session: Session, verb: str, topic: str, make: Callable[[bool], Call[r.Bulk]], dry_run: bool, yes: bool
) -> None:
    """Call on all matching jobs: count them, ask for confirmation, then repeat until the server reports completion."""
    if dry_run:
        answer = session.call(make(True))
        session.printer.result(answer.raw, _bulk_table(verb, answer.value))
        return
    if not yes:
        matched = session.call(make(True)).value.matched
        session.confirm(f"{verb} {matched} jobs of {topic}?", yes)
    matched = changed = 0
    while True:
        answer = session.call(make(False))
        matched, changed = matched + answer.value.matched, changed + answer.value.changed
        if answer.value.complete or answer.value.changed == 0:
            break
    if changed == answer.value.changed:
        raw, value = answer.raw, answer.value
    else:
        name = next(n for n in ("cancelled", "revived", "purged") if getattr(answer.value, n) is not None)
        value = msgspec.structs.replace(answer.value, matched=matched, **{name: changed})
        raw = msgspec.json.encode({"matched": matched, name: changed, "dry_run": False})
    session.printer.result(raw, _bulk_table(verb, value))
    if not answer.value.complete:
        session.printer.error("the server stopped before all jobs were done", hint="run the same command again")
        raise typer.Exit(FAILURE)


def _bulk_table(verb: str, value: r.Bulk) -> Table:
    what = "would change" if value.dry_run else "changed"
    return tables.facts(
        {"call": verb.lower(), "matched": value.matched, what: None if value.dry_run else value.changed}
    )
