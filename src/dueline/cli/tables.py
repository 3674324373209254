"""Tables for people. Pure functions from values to printable tables; `now_ms` is passed in where ages are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ..api import answers as r
from .output import LIST_WIDTH, safe

STATE_STYLES = {
    "ready": "green",
    "scheduled": "cyan",
    "leased": "yellow",
    "dead": "red",
    "done": "dim",
    "cancelled": "dim",
}
NOTHING = "-"
GAP = "  "
LEAST_TEXT = 12  # minimum width of free text, however wide the other columns are


class Listing:
    """Rows under headings. `right` names the right-aligned columns of numbers. `free` names those of free text, which
    share the remaining width: long bodies and errors are cut, ids never are."""

    def __init__(self, *columns: str, right: Sequence[str] = (), free: Sequence[str] = ()) -> None:
        self._columns = columns
        self._right = right
        self._free = [columns.index(name) for name in free]
        self._rows: list[list[Text]] = []

    def add(self, *values: Any) -> None:
        self._rows.append([cell(value) for value in values])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width if console.is_terminal else min(options.max_width, LIST_WIDTH)
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, len(GAP), 0, 0))
        for column in self._columns:
            made.add_column(column, justify="right" if column in self._right else "left", overflow="fold")
        for row in self._cut(width):
            made.add_row(*row)
        yield from console.render(made, options.update(width=width))

    def _cut(self, width: int) -> list[list[Text]]:
        """The rows, with free text cut to its share of the width."""
        widths = [
            max([len(name), *(row[place].cell_len for row in self._rows)]) for place, name in enumerate(self._columns)
        ]
        spare = width - len(GAP) * (len(widths) - 1) - sum(widths)
        for place in sorted(self._free, key=lambda place: widths[place], reverse=True):
            if spare < 0:
                least = max(len(self._columns[place]), LEAST_TEXT)
                kept = max(least, widths[place] + spare)
                spare += max(widths[place] - kept, 0)
                for row in self._rows:
                    row[place] = Text(row[place].plain.replace("\n", " "), style=row[place].style)
                    row[place].truncate(kept, overflow="ellipsis")
        return self._rows


def facts(rows: Mapping[str, Any]) -> Table:
    """A table of names and values, without those that do not apply."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in rows.items():
        if value is not None and value != "":
            made.add_row(name, cell(value))
    return made


def cell(value: Any) -> Text:
    """A value as text: lists and objects as JSON, control characters escaped."""
    if isinstance(value, Text):
        return value
    if isinstance(value, dict | list):
        return Text(safe(msgspec.json.encode(value).decode()))
    return Text(NOTHING if value is None else safe(str(value)))


def state_cell(state: str, reason: str | None = None) -> Text:
    return Text(f"{state} ({reason})" if reason else state, style=STATE_STYLES.get(state, ""))


def moment(at_ms: int | None, now_ms: int | None = None) -> str | None:
    """A time in this machine's time zone, with its distance from `now_ms` if that is given."""
    if at_ms is None:
        return None
    try:
        text = datetime.fromtimestamp(at_ms / 1000).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)
    return text if now_ms is None else f"{text} ({distance(at_ms, now_ms)})"


def distance(at_ms: int, now_ms: int) -> str:
    """How far a time is from now: "in 5m", "3s ago"."""
    return f"in {age(at_ms - now_ms)}" if at_ms > now_ms else f"{age(now_ms - at_ms)} ago"


def age(ms: float | None) -> str:
    """A duration in at most two units."""
    if ms is None:
        return NOTHING
    if ms < 1000:
        return f"{max(ms, 0):.0f}ms"
    seconds = int(ms // 1000)
    for (big, big_s), (small, small_s) in zip(_UNITS, [*_UNITS[1:], ("", 1)], strict=True):
        if seconds >= big_s:
            rest = seconds % big_s // small_s
            return f"{seconds // big_s}{big} {rest}{small}" if small and rest else f"{seconds // big_s}{big}"
    return "0s"


_UNITS = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)]


def body_text(job: r.Payload) -> str:
    """A body as text: JSON unchanged, bytes as base64."""
    if isinstance(job.body_base64, str):
        return f"base64:{job.body_base64}"
    return (job.data or b"").decode("utf-8", "replace")


def error_line(text: str | None) -> str:
    """An error in one line. A worker's error begins with the user's own frame, shown here without its folder, and ends
    with the exception."""
    lines = (text or "").splitlines()
    return f"{lines[0].rpartition('/')[2]}: {lines[-1]}" if len(lines) > 1 else "".join(lines)


def sent(value: r.Sent, now_ms: int) -> Table:
    return facts(
        {
            "id": value.id,
            "result": value.result,
            "state": state_cell(value.state),
            "due": moment(value.due_at_ms, now_ms),
            "version": value.version,
            "items": value.items_count,
        }
    )


def job(value: r.Job, now_ms: int) -> Table:
    """Everything about one job."""
    allowed = "no limit" if value.max_attempts is None else str(value.max_attempts)
    return facts(
        {
            "id": value.id,
            "topic": value.topic,
            "state": state_cell(value.state, value.reason),
            "due": moment(value.due_at_ms, now_ms),
            "created": moment(value.created_at_ms, now_ms),
            "updated": moment(value.updated_at_ms, now_ms),
            "ended": moment(value.ended_at_ms, now_ms),
            "lease until": moment(value.lease_until_ms, now_ms),
            "expires": moment(value.expires_at_ms, now_ms),
            "readable until": moment(value.retain_until_ms, now_ms),
            "attempts": f"{value.attempts} of {allowed}",
            "retry": value.retry,
            "tags": " ".join(value.tags),
            "headers": " ".join(f"{name}={text}" for name, text in value.headers.items()),
            "merge key": value.merge_key,
            "version": value.version,
            "last error": value.last_error,
            "items" if value.merge_key else "body": body_text(value),
        }
    )


def history(value: r.History) -> Listing:
    """What happened to a job, oldest first."""
    made = Listing("AT", "WHAT", "ATTEMPT", "BY", "DUE", "ERROR", right=("ATTEMPT",), free=("BY", "ERROR"))
    for one in value.entries:
        what = one.what if one.reason is None else f"{one.what} ({one.reason})"
        made.add(moment(one.at_ms), what, one.attempt, one.by, moment(one.due_at_ms), error_line(one.error))
    return made


def leased(jobs: Sequence[r.LeasedJob], now_ms: int) -> Listing:
    """Pulled jobs, with their topics if there are several."""
    several = len({job.topic for job in jobs}) > 1
    made = Listing(
        *("ID", *(("TOPIC",) if several else ()), "ATTEMPT", "LEASE", "ENDS", "BODY"),
        right=("ATTEMPT",),
        free=("BODY",),
    )
    for j in jobs:
        topic = (j.topic,) if several else ()
        made.add(j.id, *topic, j.attempt, j.lease, distance(j.lease_until_ms, now_ms), body_text(j))
    return made


def jobs(page: Sequence[r.Job], now_ms: int, body: bool = False) -> Listing:
    """A list of jobs. WHEN is the due time of a live job and the end time of an ended one. For lack of width, tags are
    shown only if no job of the page has an error."""
    columns = {"LAST ERROR": [error_line(j.last_error) for j in page]}
    if not any(columns["LAST ERROR"]):
        columns = {"TAGS": [" ".join(j.tags) for j in page]}
    if body:
        columns["BODY"] = [body_text(j) for j in page]
    texts = {name: cells for name, cells in columns.items() if any(cells)}
    made = Listing("ID", "STATE", "ATTEMPTS", "WHEN", *texts, right=("ATTEMPTS",), free=tuple(texts))
    for place, j in enumerate(page):
        when = distance(j.ended_at_ms or j.due_at_ms, now_ms)
        made.add(j.id, state_cell(j.state, j.reason), j.attempts, when, *(cells[place] for cells in texts.values()))
    return made


def outcomes(results: Iterable[r.Outcome]) -> Listing:
    made = Listing("ID", "RESULT", "WHEN")
    for o in results:
        if o.error is not None:
            made.add(o.id, Text(o.error.code, style="red"), "")
            continue
        what = f"{o.result} ({o.reason})" if o.reason else o.result
        made.add(o.id, what, moment(o.due_at_ms or o.lease_until_ms) or "")
    return made


def topics(page: Iterable[r.Topic], now_ms: int, rates: Mapping[str, float] | None = None) -> Listing:
    """The topics with their counts; `rates` (net change of live jobs per second) adds the columns of speed."""
    numbers = (
        "SCHEDULED",
        "READY",
        "LEASED",
        "DEAD",
        "OLDEST",
        "NEXT DUE",
        "WAITERS",
        "CHANGE/S",
        "DONE/S",
        "LATE P99",
    )
    columns = ["TOPIC", *(numbers if rates is not None else numbers[:-3]), "STATE"]
    made = Listing(*columns, right=numbers)
    for t in page:
        row: list[Any] = [t.topic, t.counts.scheduled, t.counts.ready, t.counts.leased, t.counts.dead]
        row.append(age(None if t.oldest_ready_at_ms is None else now_ms - t.oldest_ready_at_ms))
        row.append(age(None if t.next_due_at_ms is None else max(t.next_due_at_ms - now_ms, 0)))
        row.append(t.waiters)
        if rates is not None:
            rate = rates.get(t.topic)
            row.append(NOTHING if rate is None else f"{rate:+.1f}")
            row += (_per_s(t), age(t.late_p99_ms))
        row.append(Text("paused", style="yellow") if t.paused else "")
        made.add(*row)
    return made


def _per_s(t: r.Topic) -> str | Text:
    return NOTHING if t.done_per_s is None else f"{t.done_per_s:.1f}"


def topic(t: r.Topic, now_ms: int) -> Table:
    """Everything about one topic. Policy values are shown only if set, not the server's defaults."""
    counts = t.counts
    rows: dict[str, Any] = {
        "topic": t.topic,
        "scheduled": counts.scheduled,
        "ready": counts.ready,
        "leased": counts.leased,
        "done": counts.done,
        "dead": counts.dead,
        "cancelled": counts.cancelled,
        "oldest ready": moment(t.oldest_ready_at_ms, now_ms),
        "next due": moment(t.next_due_at_ms, now_ms),
        "waiters": t.waiters,
        "done per second": _per_s(t),
        "late p99": age(t.late_p99_ms),
        "partitions": t.partitions,
    }
    if t.history_dropped:
        rows["histories"] = f"{t.history_dropped} entries did not fit limits.max_history_bytes"
    if t.expansion is not None:
        rows["old partitions"] = f"{t.expansion.old_partitions}, with jobs of {t.expansion.cells} of 1,024 cells"
    if t.paused:
        rows["paused"] = "until resumed" if t.paused_until_ms is None else f"until {moment(t.paused_until_ms, now_ms)}"
    by_worker = t.policy.get("by_worker") or ()
    for name, value in t.policy.items():
        if value is not None and name != "by_worker":
            rows[name] = f"{value} (set by a worker)" if name in by_worker else value
    return facts(rows)
