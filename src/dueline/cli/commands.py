"""All commands on the native API, as one list. `main` adds `serve` and calls `register`.

There is one file per noun: jobs, listing, leases, work, topics, dead, push, top, bench, doctor, fsck, store. Every
command has examples, and a test checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer

from . import bench, dead, doctor, fsck, jobs, leases, listing, push, store, top, topics, version, work

Entry = tuple[str, Callable[..., None], Sequence[str]]

JOBS: tuple[Entry, ...] = (
    ("send", jobs.send, jobs.SEND_EXAMPLES),
    ("pull", leases.pull, leases.PULL_EXAMPLES),
    ("ack", leases.ack, leases.ACK_EXAMPLES),
    ("release", leases.release, leases.RELEASE_EXAMPLES),
    ("extend", leases.extend, leases.EXTEND_EXAMPLES),
    ("get", jobs.get, jobs.GET_EXAMPLES),
    ("list", listing.list_jobs, listing.LIST_EXAMPLES),
    ("cancel", jobs.cancel, jobs.CANCEL_EXAMPLES),
    ("fire", jobs.fire, jobs.FIRE_EXAMPLES),
    ("reschedule", jobs.reschedule, jobs.RESCHEDULE_EXAMPLES),
    ("work", work.work, work.WORK_EXAMPLES),
)
TOPICS: tuple[Entry, ...] = (
    ("topics", topics.topics, topics.TOPICS_EXAMPLES),
    ("topic", topics.topic, topics.TOPIC_EXAMPLES),
    ("namespaces", topics.namespaces, topics.NAMESPACES_EXAMPLES),
)
DEAD: tuple[Entry, ...] = (
    ("list", dead.list_dead, dead.LIST_EXAMPLES),
    ("revive", dead.revive, dead.REVIVE_EXAMPLES),
    ("purge", dead.purge, dead.PURGE_EXAMPLES),
)
PUSH: tuple[Entry, ...] = (
    ("show", push.show, push.SHOW_EXAMPLES),
    ("set", push.set_push, push.SET_EXAMPLES),
    ("remove", push.remove, push.REMOVE_EXAMPLES),
    ("pause", push.pause, push.PAUSE_EXAMPLES),
    ("resume", push.resume, push.RESUME_EXAMPLES),
    ("attempts", push.attempts, push.ATTEMPTS_EXAMPLES),
)
BENCH: tuple[Entry, ...] = (
    ("send", bench.send, bench.SEND_EXAMPLES),
    ("roundtrip", bench.roundtrip, bench.ROUNDTRIP_EXAMPLES),
    ("lateness", bench.lateness, bench.LATENESS_EXAMPLES),
)
STORE: tuple[Entry, ...] = (("accept", store.accept, store.ACCEPT_EXAMPLES),)
OPERATIONS: tuple[Entry, ...] = (
    ("top", top.top, top.TOP_EXAMPLES),
    ("doctor", doctor.doctor, doctor.DOCTOR_EXAMPLES),
    ("fsck", fsck.fsck, fsck.FSCK_EXAMPLES),
    ("version", version.version, version.VERSION_EXAMPLES),
)


def register(app: typer.Typer) -> None:
    """Add every command to the app."""
    _add(app, JOBS, "Jobs")
    _add(app, TOPICS, "Topics")
    _add_group(app, "dead", "List, revive and purge dead jobs.", DEAD, "Topics")
    _add_group(app, "push", "Deliver jobs by HTTP calls.", PUSH, "Topics")
    _add(app, OPERATIONS, "Operations")
    _add_group(app, "store", "Maintain the data folder of an embedded store.", STORE, "Operations")
    _add_group(app, "bench", "Measure a running server.", BENCH, "Operations")


def _add(app: typer.Typer, entries: Sequence[Entry], panel: str | None) -> None:
    for name, command, examples in entries:
        app.command(name, epilog=_epilog(examples), rich_help_panel=panel)(command)


def _add_group(app: typer.Typer, name: str, help: str, entries: Sequence[Entry], panel: str) -> None:
    group = typer.Typer(no_args_is_help=True, help=help)
    _add(group, entries, None)
    app.add_typer(group, name=name, rich_help_panel=panel)


def _epilog(examples: Sequence[str]) -> str:
    """Examples as paragraphs, so that each keeps its own line. Brackets are escaped, because they are markup."""
    return "\n\n".join(["Examples:", *(example.replace("[", "\\[") for example in examples)])
