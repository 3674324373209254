"""Commands on access tokens: token create, list, rotate, revoke.

The text of a token goes to stdout alone, so that it can be redirected to a file. With `--url` of a store they need no
token themselves: whoever can open the store may make the first one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from msgspec import UNSET

from ..api import answers as r
from ..api.token_requests import CreateToken
from ..client import token_calls as calls
from ..client.calls import Answer
from . import tables
from .jobs import now_ms
from .output import Output
from .paging import All, Cursor, Limit, show_pages
from .session import Session, connected


class RightName(StrEnum):
    """A right that a token can have."""

    SEND = "send"
    PULL = "pull"
    READ = "read"
    MANAGE = "manage"
    PUSH = "push"
    ADMIN = "admin"


TokenId = Annotated[str, typer.Argument(metavar="ID", help="The id of the token, as `token list` shows it.")]

CREATE_EXAMPLES = (
    "dueline token create ops --right admin --all-namespaces --url embedded:./dueline-data",
    "dueline token create billing --right send --right pull --topic 'billing-*' --expires 90d",
)


@connected
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="For people: what the token is for.")],
    right: Annotated[list[RightName], typer.Option("--right", help="May be given several times. admin includes all.")],
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", help="For every namespace.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="PATTERN", help="Such as 'billing-*'; may be given several times."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="DURATION", help="Valid for this long. Default: as long as the token you use."
        ),
    ] = None,
    requests_per_s: Annotated[float | None, typer.Option(help="Requests per second, per server process.")] = None,
    max_connections: Annotated[int | None, typer.Option(help="Open connections, per server process.")] = None,
    max_polls: Annotated[
        int | None, typer.Option(help="Concurrent pulls, including waiting ones, per server process.")
    ] = None,
    max_pending_jobs: Annotated[
        int | None, typer.Option(help="Refuse its sends while its namespace has this many pending jobs.")
    ] = None,
    max_queued_jobs: Annotated[
        int | None, typer.Option(help="Jobs in its unanswered calls, per server process.")
    ] = None,
    look_ups_per_s: Annotated[
        float | None,
        typer.Option(help="Host names that its calls may set as push addresses, per second and server process."),
    ] = None,
    push_allow: Annotated[
        list[str] | None,
        typer.Option(
            "--push-allow", metavar="NETWORK|NAME", help="It may send pushes only to these; may be given several times."
        ),
    ] = None,
) -> None:
    """Create a token for one namespace, or for all of them.

    Its text is printed once and is not stored: keep it in a file that only its user can read."""
    request = CreateToken(
        name=name,
        rights=[one.value for one in right],
        namespace=None if all_namespaces else UNSET,
        topics=topic or None,
        expires=expires,
        requests_per_s=requests_per_s,
        max_connections=max_connections,
        max_polls=max_polls,
        max_pending_jobs=max_pending_jobs,
        max_queued_jobs=max_queued_jobs,
        look_ups_per_s=look_ups_per_s,
        push_allow=push_allow or None,
    )
    _show_secret(session, session.call(calls.create_token(request)))


LIST_EXAMPLES = ("dueline token list", "dueline token list --all -o jsonl")


@connected
def list_tokens(session: Session, limit: Limit = 50, cursor: Cursor = None, all: All = False) -> None:
    """List tokens, without their text. Revoked and expired ones are listed for 30 days."""

    def page_table(pages: list[r.TokenPage]) -> tables.Listing:
        made = tables.Listing(
            "ID", "STATE", "RIGHTS", "NAMESPACE", "TOPICS", "EXPIRES", "NAME", free=("TOPICS", "NAME")
        )
        for one in (one for page in pages for one in page.tokens):
            made.add(
                one.id,
                one.state,
                ",".join(one.rights),
                one.namespace or "(all)",
                ",".join(one.topics),
                None if one.expires_at_ms is None else tables.distance(one.expires_at_ms, now_ms()),
                one.name,
            )
        return made

    show_pages(session, lambda at: calls.list_tokens(at, limit), "tokens", page_table, cursor, all)


ROTATE_EXAMPLES = ("dueline token rotate 5d41402abc4b", "dueline token rotate 5d41402abc4b --overlap 0s")


@connected
def rotate(
    session: Session,
    id: TokenId,
    overlap: Annotated[
        str | None,
        typer.Option("--overlap", metavar="DURATION", help="The old text stays valid for this long; default 1h."),
    ] = None,
) -> None:
    """Give a token a new text; id, name and rights stay."""
    _show_secret(session, session.call(calls.rotate_token(id, overlap)))


REVOKE_EXAMPLES = ("dueline token revoke 5d41402abc4b",)


@connected
def revoke(session: Session, id: TokenId) -> None:
    """Revoke a token. When this returns, no server accepts it."""
    answer = session.call(calls.revoke_token(id))
    session.printer.result(answer.raw, _facts(answer.value))


def _show_secret(session: Session, answer: Answer[r.SecretToken]) -> None:
    """The text alone on stdout, everything about it on stderr; as JSON, the answer."""
    printer = session.printer
    if printer.output is not Output.TABLE:
        printer.line(answer.raw)
        return
    made = answer.value
    printer.note(f"token {made.id} ({made.name}): {', '.join(made.rights)}. Its text is shown only now:")
    printer.line(made.token.encode())


def _facts(token: r.Token) -> tables.Table:
    now = now_ms()
    return tables.facts(
        {
            "id": token.id,
            "name": token.name,
            "state": token.state,
            "rights": ", ".join(token.rights),
            "namespace": token.namespace or "(all)",
            "topics": ", ".join(token.topics),
            "created": tables.moment(token.created_at_ms, now),
            "expires": tables.moment(token.expires_at_ms, now),
            "requests/s": token.requests_per_s,
            "connections": token.max_connections,
            "polls": token.max_polls,
            "pending jobs": token.max_pending_jobs,
            "queued jobs": token.max_queued_jobs,
            "look-ups/s": token.look_ups_per_s,
            "push allow": None if token.push_allow is None else ", ".join(token.push_allow) or "(nothing)",
            "revoked": tables.moment(token.revoked_at_ms, now),
        }
    )
