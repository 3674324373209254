"""The command `doctor`: checks what a server reports about itself. Exit 1 if anything is wrong."""

from __future__ import annotations

import ipaddress
import time
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec
import typer
from rich.console import Group
from rich.text import Text

from .._version import __version__
from ..api import answers as r
from ..client import DuelineApiError, calls
from . import tables
from .exit_codes import FAILURE
from .session import Session, connected, hint

DOCTOR_EXAMPLES = ("dueline doctor", "dueline doctor --url https://queue.example:9277 -o json")

CLOCK_WARN_MS = 1_000
SHOWN_LIMITS = ("max_body_bytes", "max_request_bytes", "max_items", "max_wait_ms", "max_waiters")


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    level: Level
    what: str
    detail: str


STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.BAD: "bold red"}

DURABILITY = {
    "fsync": (Level.OK, "every answered send is on disk"),
    "replicated": (Level.OK, "every answered send is on a second node"),
    "standard": (Level.WARN, "as the store is configured: its crash may lose the last answered sends"),
    "unverified": (Level.WARN, "the store does not show its configuration"),
}


def judge_info(info: r.Info) -> list[Finding]:
    """The findings from `/v1/info`."""
    findings: list[Finding] = []
    same = info.version == __version__
    detail = info.version if same else f"{info.version}, this command is {__version__}"
    findings.append(Finding(Level.OK if same else Level.WARN, "version", detail))
    level, meaning = DURABILITY.get(info.durability or "", (Level.WARN, "not a level that this command knows"))
    findings.append(Finding(level, "durability", f"{info.durability}: {meaning}"))
    findings.append(Finding(Level.OK, "store", _short(info.store)))
    far = abs(info.clock_offset_ms) > CLOCK_WARN_MS
    text = f"store and server differ by {info.clock_offset_ms} ms" + (
        "; only the store's clock decides, but times in logs will not agree" if far else ""
    )
    findings.append(Finding(Level.WARN if far else Level.OK, "clock", text))
    findings.append(Finding(Level.OK, "namespace", info.namespace or "default"))
    shown = ", ".join(f"{name} {info.limits[name]}" for name in SHOWN_LIMITS if name in info.limits)
    findings.append(Finding(Level.OK, "limits", f"{shown} (all: -o json)"))
    return findings


def judge_ready(ready: r.Readiness) -> Finding:
    """The finding from `/readyz`."""
    if ready.ready:
        return Finding(Level.OK, "ready", "accepts sends and pulls")
    return Finding(
        Level.BAD, "ready", "not ready: " + ("; ".join(_message(one) for one in ready.reasons) or "no reason given")
    )


def judge_address(url: str, has_token: bool) -> list[Finding]:
    """Whether the token would be sent unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "https" or not has_token or _is_loopback(parts.hostname or ""):
        return []
    return [Finding(Level.WARN, "token", f"travels unencrypted to {parts.hostname}: use https")]


def judge_token(info: r.Info, has_token: bool) -> list[Finding]:
    """Whether the caller's token has any effect."""
    if not has_token or info.auth != "none":
        return []
    return [Finding(Level.WARN, "token", "has no effect: this server does not check tokens")]


def judge_callers(info: r.Info) -> list[Finding]:
    """Findings about who may call the dialects."""
    if not info.dialects:
        return []
    shown = ", ".join(f"{name} {who}" for name, who in info.dialects.items())
    everyone = info.auth == "tokens" and "none" in info.dialects.values()
    if everyone:
        shown += '; with "none", everyone who can reach the server may use the dialect without a token'
    return [Finding(Level.WARN if everyone else Level.OK, "dialects", shown)]


def judge_all(findings: list[Finding]) -> tuple[Level, str]:
    """The worst level, and a summary in words."""
    levels = [finding.level for finding in findings]
    if Level.BAD in levels:
        return Level.BAD, "something is wrong"
    warnings = levels.count(Level.WARN)
    if warnings:
        return Level.WARN, f"works, with {warnings} warning{'s' if warnings > 1 else ''}"
    return Level.OK, "all is well"


def examine(session: Session) -> tuple[list[Finding], r.Info | None]:
    """All checks that this caller's permissions allow."""
    findings = judge_address(session.url, session.token is not None)
    begun = time.perf_counter()
    try:
        ready = session.call(calls.ready()).value
    except DuelineApiError as error:
        advice = hint(error)
        return [*findings, Finding(Level.BAD, "server", f"{error}" + (f"; {advice}" if advice else ""))], None
    took_ms = (time.perf_counter() - begun) * 1000
    findings += [Finding(Level.OK, "server", f"{session.url} answers in {took_ms:.1f} ms"), judge_ready(ready)]
    findings += [Finding(Level.WARN, "warning", _message(one)) for one in ready.warnings]
    try:
        info = session.call(calls.info()).value
    except DuelineApiError as error:
        advice = hint(error)
        return [*findings, Finding(Level.BAD, "info", f"{error}" + (f"; {advice}" if advice else ""))], None
    findings += judge_info(info) + judge_token(info, session.token is not None) + judge_callers(info)
    return findings, info


@connected
def doctor(session: Session) -> None:
    """Check each server: reachable, ready, version, durability, clock, limits."""
    findings: list[Finding] = []
    info: r.Info | None = None
    for one in session.each_server():
        found, info_here = examine(one)
        findings, info = findings + found, info or info_here
    worst, summary = judge_all(findings)
    made = tables.Listing("", "CHECK", "FOUND")
    for finding in findings:
        made.add(Text(finding.level, style=STYLES[finding.level]), finding.what, finding.detail)
    raw = msgspec.json.encode({"ok": worst is Level.OK, "findings": findings, "info": info})
    session.printer.result(raw, Group(made, Text(summary, style=STYLES[worst])), rows="findings")
    if worst is not Level.OK:
        raise typer.Exit(FAILURE)


def _message(reason: object) -> str:
    """A reason or warning from `/readyz` as text."""
    named = reason if isinstance(reason, dict) else {}
    return f"{named['code']}: {named['message']}" if {"code", "message"} <= named.keys() else _short(reason)


def _short(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
