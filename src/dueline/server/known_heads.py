"""The parsed heads that the readers of a front remember, because clients repeat themselves. No I/O.

A head that came before, byte for byte, is not parsed again. Neither is one that differs only in its Content-Length:
bodies have many lengths, and everything else that a head says is the same for all of them.
"""

from __future__ import annotations

import re

import msgspec

from ..dialects.http import Line
from ..engine.errors import DuelineError
from ..rights import Grant
from .authentication import Authenticator
from .exchange import Exchange
from .head import Headers
from .quotas import Quota
from .router import Found

MAX_HEADS = 2048
MAX_TEMPLATES = 8192  # of about 2 KB
MAX_HEAD_BYTES = 1024
UNUSUAL = ("expect", "upgrade", "transfer-encoding")
_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([1-9][0-9]{0,8})\r\n")


class KnownHead(msgspec.Struct, frozen=True):
    """The parsed form of a head that may occur again. `body_bytes` is the exact size of the body that follows it."""

    found: Found
    method: str
    path: str
    query: str
    headers: Headers
    body_bytes: int
    grant: Grant
    quota: Quota | None
    line: Line | None

    @staticmethod
    def of(exchange: Exchange, headers: Headers) -> KnownHead:
        request, make = exchange.request, exchange.found.route.line
        if make is not None and exchange.line is None and request.method != "HEAD":
            try:
                exchange.line = make(request)
            except DuelineError:
                pass  # every request with this head is refused
        return KnownHead(
            exchange.found,
            request.method,
            request.path,
            request.query,
            headers,
            len(request.body),
            request.grant,
            exchange.quota,
            exchange.line,
        )

    def before(self, body_bytes: int) -> KnownHead:
        """The same head before a body of another length."""
        headers = self.headers.replaced(b"content-length", b"%d" % body_bytes)
        return msgspec.structs.replace(self, body_bytes=body_bytes, headers=headers)


class KnownHeads:
    """`exact`: by the fingerprint of the whole head. `templates`: of the head without its Content-Length. An empty body
    has no template, because a head may mean something else without a body."""

    def __init__(self, auth: Authenticator, max_body_bytes: int) -> None:
        self.exact: dict[bytes, KnownHead] = {}
        self.templates: dict[bytes, KnownHead] = {}
        self._auth = auth
        self._max_body_bytes = max_body_bytes

    def find(self, head: bytes) -> KnownHead | None:
        """What a head says, if that is known and its grant still holds."""
        key = self._auth.fingerprint(head)
        known = self.exact.get(key)
        if known is None:
            known = self._before_another_body(head, key)
        return known if known is not None and self._auth.holds(known.grant) else None

    def keep(self, head: bytes, exchange: Exchange, headers: Headers, has_token: bool) -> None:
        """Remember the head of this request, unless something about it is unusual."""
        key = self._auth.fingerprint(head)
        if not _is_usual(head, exchange) or (key is head and has_token):
            return  # the bytes of a token are never kept
        known = KnownHead.of(exchange, headers)
        _put(self.exact, key, known, MAX_HEADS)
        length = _LENGTH.search(head)
        if length is not None:
            _put(self.templates, self._template_key(head, length), known, MAX_TEMPLATES)

    def _before_another_body(self, head: bytes, key: bytes) -> KnownHead | None:
        length = _LENGTH.search(head) if self.templates else None
        template = None if length is None else self.templates.get(self._template_key(head, length))
        if length is None or template is None:
            return None
        body_bytes, most = int(length[1]), template.found.route.max_body_bytes
        if body_bytes > (self._max_body_bytes if most is None else most):
            return None
        known = template.before(body_bytes)
        _put(self.exact, key, known, MAX_HEADS)
        return known

    def _template_key(self, head: bytes, length: re.Match[bytes]) -> bytes:
        return self._auth.fingerprint(head[: length.start(1)] + head[length.end(1) :])


def _put(heads: dict[bytes, KnownHead], key: bytes, known: KnownHead, most: int) -> None:
    if len(heads) >= most:
        heads.clear()
    heads[key] = known


def _is_usual(head: bytes, exchange: Exchange) -> bool:
    """Whether the same head always means the same request, with a body of the same size."""
    headers = exchange.request.headers
    return (
        len(head) <= MAX_HEAD_BYTES
        and exchange.keep_alive
        and not exchange.old
        and headers.get("content-length", "0") == str(len(exchange.request.body))
        and not any(name in headers for name in UNUSUAL)
    )
