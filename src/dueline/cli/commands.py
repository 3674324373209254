"""The table of all commands. Each is a function in a module of this package, with its examples beside it in
`NAME_EXAMPLES`. A test runs every example.

A module is imported only if the command line needs it, because most of the time of a short command would be imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

import typer


class Section(NamedTuple):
    """Commands under one heading of the help. `commands` maps a name to `module.function`. If there is a `group`, the
    commands are its subcommands."""

    panel: str
    commands: Mapping[str, str]
    group: str | None = None
    help: str | None = None

    def loaded(self) -> Iterator[tuple[str, Callable[..., None], Sequence[str]]]:
        """Each command: its name, its function and its examples."""
        for name, place in self.commands.items():
            module_name, _, function = place.partition(".")
            module = import_module(f".{module_name}", __package__)
            yield name, getattr(module, function), getattr(module, f"{name.upper()}_EXAMPLES")


SECTIONS = (
    Section("Server", {"serve": "serve.serve", "demo": "demo.demo"}),
    Section(
        "Jobs",
        {
            "send": "jobs.send",
            "pull": "leases.pull",
            "ack": "leases.ack",
            "release": "leases.release",
            "extend": "leases.extend",
            "get": "jobs.get",
            "history": "jobs.history",
            "list": "listing.list_jobs",
            "cancel": "jobs.cancel",
            "fire": "jobs.fire",
            "reschedule": "jobs.reschedule",
            "work": "work.work",
        },
    ),
    Section("Topics", {"topics": "topics.topics", "topic": "topics.topic", "namespaces": "topics.namespaces"}),
    Section(
        "Topics",
        {"list": "dead.list_dead", "revive": "dead.revive", "purge": "dead.purge"},
        "dead",
        "List, revive and purge dead jobs.",
    ),
    Section(
        "Topics",
        {
            "show": "push.show",
            "set": "push.set_push",
            "remove": "push.remove",
            "pause": "push.pause",
            "resume": "push.resume",
            "attempts": "push.attempts",
        },
        "push",
        "Deliver jobs by HTTP calls.",
    ),
    Section(
        "Topics",
        {
            "list": "schedules.list_schedules",
            "show": "schedules.show",
            "put": "schedules.put",
            "run": "schedules.run",
            "pause": "schedules.pause",
            "resume": "schedules.resume",
            "delete": "schedules.delete",
            "next": "schedules.next_occurrences",
        },
        "schedules",
        "Send jobs repeatedly: by cron or at an interval.",
    ),
    Section(
        "Operations",
        {
            "top": "top.top",
            "events": "events.events",
            "watch": "events.watch",
            "workers": "workers.workers",
            "audit": "audit.audit",
            "doctor": "doctor.doctor",
            "fsck": "fsck.fsck",
            "version": "version.version",
        },
    ),
    Section(
        "Operations",
        {
            "create": "tokens.create",
            "list": "tokens.list_tokens",
            "rotate": "tokens.rotate",
            "revoke": "tokens.revoke",
        },
        "token",
        "Create, list, rotate and revoke access tokens.",
    ),
    Section("Operations", {"accept": "store.accept"}, "store", "Accept that data of a store is lost."),
    Section(
        "Operations",
        {"send": "bench.send", "roundtrip": "bench.roundtrip", "lateness": "bench.lateness"},
        "bench",
        "Measure a server or a store.",
    ),
)


def register(app: typer.Typer, word: str = "") -> None:
    """Add the command or the group that `word` names; if it names none, add all."""
    for section in _sections(word) or SECTIONS:
        if section.group is None:
            _add(app, section, section.panel)
        else:
            group = typer.Typer(no_args_is_help=True, help=section.help)
            _add(group, section, None)
            app.add_typer(group, name=section.group, rich_help_panel=section.panel)


def _sections(word: str) -> list[Section]:
    """The table with nothing in it but the command or the group that `word` names."""
    groups = [section for section in SECTIONS if section.group == word]
    commands = [section for section in SECTIONS if section.group is None and word in section.commands]
    return groups + [section._replace(commands={word: section.commands[word]}) for section in commands]


def _add(app: typer.Typer, section: Section, panel: str | None) -> None:
    for name, command, examples in section.loaded():
        app.command(name, epilog=_epilog(examples), rich_help_panel=panel)(command)


def _epilog(examples: Sequence[str]) -> str:
    """Examples as paragraphs, so that each keeps its own line. Brackets are escaped, because they are markup."""
    return "\n\n".join(["Examples:", *(example.replace("[", "\\[") for example in examples)])
