"""Who may call the dialects of a server.

    [dialects.NAME] auth   header   callers with a token in the Authorization header
                           path     callers with a token there or in front of the path
                           network  everyone whose connection the dialect's listener accepts (`gate`)
                           none     everyone

With `network` and `none`, callers get a fixed grant in the dialect's namespace, without admin; tokens are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..config.settings import Settings
from ..dialects.http import RouteOwner, TokenPlace
from ..dialects.settings import ForeignSettings
from ..engine.errors import DuelineError, Forbidden
from ..rights import Grant, Right
from ..telemetry.notices import Notices
from .authentication import Authenticator
from .gate import Networks
from .router import Found

ALL_BUT_ADMIN = frozenset(Right) - {Right.NONE, Right.ADMIN}


class DialectCallers:
    """What the settings of a server mean for its authenticator, routers and listeners. `dialects` by name."""

    def __init__(self, settings: Settings, dialects: Mapping[str, RouteOwner], notices: Notices) -> None:
        served = settings.served().items()
        self._sections = {dialects[name]: one for name, one in served if isinstance(one, ForeignSettings)}
        self._names = {dialect: name for name, dialect in dialects.items()}
        self._tokens = settings.server.auth == "tokens"
        self._notices = notices
        self.connections_refused = 0

    def authenticator(self, others: Authenticator) -> Authenticator:
        """`others`, but callers of dialects that need no token get a fixed grant. If the server checks no tokens,
        everyone may do everything on an address that everyone can reach."""
        grants = {
            dialect: Grant(ALL_BUT_ADMIN, section.namespace, name=f"{section.auth}:{self._names[dialect]}")
            for dialect, section in self._sections.items()
            if section.auth == "network" or (section.auth == "none" and self._tokens)
        }
        return DialectAccess(others, grants, self._token_ignored) if grants else others

    def token_places(self) -> dict[RouteOwner, TokenPlace]:
        """The dialects that accept tokens in fewer places than their routes say."""
        return {dialect: TokenPlace.HEADER for dialect, one in self._sections.items() if one.auth == "header"}

    def networks(self, listen: str) -> Networks | None:
        """The networks that may connect to an address; None: all. All its dialects have the same networks."""
        for section in self._sections.values():
            if section.listen == listen and section.auth == "network":
                return Networks(section.parsed_networks(), partial(self._connection_refused, listen))
        return None

    def _token_ignored(self) -> None:
        self._notices.notice("token", "a token has no effect: this dialect needs none")

    def _connection_refused(self, listen: str, client: str) -> None:
        self.connections_refused += 1
        event = "a connection was closed: its address is not in `networks`"
        self._notices.notice(("networks", listen), event, listen=listen, client=client)


class DialectAccess:
    """An Authenticator: `grants` for the callers of these dialects, `others` for all other routes. `ignored` is called
    for a request with a token that is not looked at."""

    def __init__(
        self, others: Authenticator, grants: Mapping[RouteOwner, Grant], ignored: Callable[[], None] = lambda: None
    ) -> None:
        self._others = others
        self._grants = dict(grants)
        self._ignored = ignored

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        grant = None if found.dialect is None else self._grants.get(found.dialect)
        if grant is None:
            return self._others.admit(found, token, namespace)
        if token is not None:
            self._ignored()
        right = found.route.right
        if not any(grant.allows(one) for one in ((right,) if isinstance(right, Right) else right.values())):
            raise Forbidden(f"This call needs the right {right}. Callers without a token do not have it.")
        return grant

    def holds(self, grant: Grant) -> bool:
        return not grant.token_id or self._others.holds(grant)

    def refusal(self, grant: Grant) -> DuelineError | None:
        return self._others.refusal(grant) if grant.token_id else None

    def fingerprint(self, head: bytes) -> bytes:
        return self._others.fingerprint(head)
