"""What every command on the API shares: the client, the printer, and the exit codes for failures.

    @connected
    def get(session: Session, topic: Topic, id: Id) -> None: ...

`connected` gives the command the common options (--url --namespace --token-file -o) and calls it with a Session.
Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..client import Client, DuelineApiError, Patience
from ..client.address import DEFAULT_URL, is_server, log, urls_of, using
from ..client.calls import Answer, Call
from ..client.errors import Conflict, NotAllowed, NotFound, UnknownOutcome, Unreachable
from .exit_codes import CONFLICT, FAILURE, NOT_FOUND, USAGE
from .output import Output, Printer

T = TypeVar("T")

_PANEL = "Common options"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="DUELINE_URL",
        help="A server, or several: http://a,http://b. Or a store: redis://.",
        rich_help_panel=_PANEL,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", envvar="DUELINE_NAMESPACE", help="Tenant; default: that of the token.", rich_help_panel=_PANEL
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="DUELINE_TOKEN_FILE",
        help="File that contains the token; or set DUELINE_TOKEN to the token.",
        rich_help_panel=_PANEL,
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Output format; json is the API's answer.", rich_help_panel=_PANEL)
]


class Session:
    """One run of one command: its client and its printer."""

    def __init__(self, url: str, namespace: str | None, token: str | None, output: Output) -> None:
        self.namespace = namespace
        self.token = token
        self.printer = Printer(output)
        self.client = open_client(url, namespace, token)
        self.url = self.client.url

    def call(self, call: Call[T]) -> Answer[T]:
        return self.client.call(call)

    def each_server(self) -> list[Session]:
        """A session for each server of the URL."""
        urls = urls_of(self.url) if is_server(self.url) else [self.url]
        if len(urls) == 1:
            return [self]
        return [Session(url, self.namespace, self.token, self.printer.output) for url in urls]

    def confirm(self, question: str, yes: bool) -> None:
        """Continue only with --yes or after a yes. Without a terminal, refuse."""
        confirm(self.printer, question, yes)


def confirm(printer: Printer, question: str, yes: bool) -> None:
    """`Session.confirm`, for a command that uses no server."""
    if yes:
        return
    if not sys.stdin.isatty():
        printer.error(f"{question} stdin is not a terminal", hint="add --yes to skip the question")
        raise typer.Exit(USAGE)
    if not typer.confirm(question, err=True):
        raise typer.Exit(FAILURE)


@contextmanager
def server_parts(printer: Printer) -> Generator[None]:
    """Wrap the imports of a command that reads a store itself. Prints what to install if they fail."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("dueline"):
            raise
        printer.error(
            "this command reads the store itself, and packages for that are missing",
            hint='install dueline[server]: pip install "dueline[server]"',
        )
        raise typer.Exit(FAILURE) from missing


def open_client(url: str, namespace: str | None, token: str | None) -> Client:
    """A client of the server or the store at `url`. Raises ValueError for other URLs.

    A refused connection is not retried: at a prompt, an immediate hint is better than ten seconds of silence."""
    patience = Patience(unreachable=False)
    if is_server(url):
        return Client(url, namespace, token, patience=patience)
    from ..worker.queue import resolved

    url = resolved(url)
    try:
        from .direct import StoreClient
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("dueline"):
            raise
        raise ValueError(
            f'a store needs {missing.name}: pip install "dueline[server]", or use the URL of a server'
        ) from missing
    return StoreClient(url, namespace, patience)


def read_token(token_file: Path | None) -> str | None:
    """The token from its file, else from DUELINE_TOKEN. Never from an argument, which other users can see."""
    if token_file is None:
        return os.environ.get("DUELINE_TOKEN") or None
    try:
        token = token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise typer.BadParameter(f"cannot read {token_file}: {wrong}", param_hint="--token-file") from wrong
    if not token:
        raise typer.BadParameter(f"{token_file} is empty", param_hint="--token-file")
    return token


def exit_code(error: DuelineApiError) -> int:
    """The exit code for an error."""
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, Conflict):
        return CONFLICT
    return USAGE if error.status == 400 else FAILURE


def hint(error: DuelineApiError) -> str | None:
    """What the user can do about an error, if known."""
    if isinstance(error, Unreachable):
        return "start one with: dueline serve    or name another with --url or DUELINE_URL"
    if isinstance(error, UnknownOutcome):
        return "it may have been done: repeat it with the same id" + (f" ({error.id})" if error.id else "")
    if isinstance(error, NotAllowed) and error.code != "egress_refused":
        return "give a token that may do this with --token-file or DUELINE_TOKEN"
    return _HINTS.get(error.code)


_HINTS = {
    "egress_refused": "the server's operator can allow addresses with push.allow in its configuration",
    "lease_lost": "the job was leased again, released or ended; pull it again to get a new lease",
    "job_leased": "a consumer holds it; wait until it is done or its lease expires",
    "id_exists": "the id is taken: use --on-conflict keep or replace, or another id",
    "version_mismatch": "it has changed meanwhile: read it again",
    "topic_not_empty": "see what it holds with `dueline list` and `dueline dead list`",
    "expanding": "see how far it is with `dueline topic`; old jobs must end, dead ones be revived or purged",
    "store_full": "finish, cancel or purge jobs, or give the store more room",
    "bad_answer": "check --url: the answer does not come from a Dueline server",
    "no_route": "check --url, or the server is older than this command",
}


@contextmanager
def silent_client(silent: bool) -> Generator[None]:
    """Keep the client's log off stderr if `silent`: with JSON output, stderr must hold nothing but an error object."""
    log.disabled, before = silent or log.disabled, log.disabled
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def failures_reported(printer: Printer) -> Generator[None]:
    """Turn an API error in the block into a message on stderr and an exit code."""
    try:
        yield
    except DuelineApiError as error:
        raise reported(printer, error) from error


def reported(printer: Printer, error: DuelineApiError, about: str | None = None) -> typer.Exit:
    """Print the error and return the exit for it."""
    text = str(error) if about is None else f"{about}: {error}"
    printer.error(text, raw=error.raw or error_object(error), hint=hint(error))
    return typer.Exit(exit_code(error))


def error_object(error: DuelineApiError) -> bytes:
    """An error object in the API's form, for an error that did not come from a server."""
    import msgspec

    return msgspec.json.encode({"error": {"code": error.code, "message": error.message, "field": error.field}})


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the common options added. It gets a Session instead of them; its failures become exit codes."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        url, namespace = options.pop("url"), options.pop("namespace")
        token, output = read_token(options.pop("token_file")), options.pop("output")
        try:
            session = Session(url, namespace, token, output)
        except ValueError as wrong:
            raise typer.BadParameter(str(wrong)) from wrong
        session.printer.note(using(url))
        with session.client, silent_client(output is not Output.TABLE), failures_reported(session.printer):
            command(session, *args, **options)

    hints = typing.get_type_hints(command, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(command).parameters.values())[1:]]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in (
            ("url", Url, DEFAULT_URL),
            ("namespace", Namespace, None),
            ("token_file", TokenFile, None),
            ("output", OutputOption, Output.TABLE),
        )
    ]
    run.__signature__ = inspect.Signature(own + common)  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
    run.__annotations__ = {p.name: p.annotation for p in own + common}
    return run
