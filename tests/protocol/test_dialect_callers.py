"""Dialects whose callers need no token, beside an authenticator for all others."""

from __future__ import annotations

import pytest

from dueline.dialects.http import PUBLIC, Route, TokenPlace
from dueline.engine.errors import Forbidden, Unauthorized
from dueline.rights import Grant, Right
from dueline.server.dialect_callers import ALL_BUT_ADMIN, DialectAccess
from dueline.server.router import Found

from .kit import Probe
from .test_authentication import TOKEN, Guests

OPEN = Grant(ALL_BUT_ADMIN, "open", name="network:open")
RIGHTS = {"pop": Right.PULL, "offline": Right.ADMIN}
WITH_TOKEN = Grant(frozenset({Right.ADMIN}), token_id=TOKEN)


def test_a_dialect_is_asked_by_its_own_rule() -> None:
    ignored: list[None] = []
    guests, ours, others = Guests(TOKEN), Probe(), Probe()
    access = DialectAccess(guests, {ours: OPEN}, lambda: ignored.append(None))

    def found(right: Right | dict[str, Right], owner: Probe | None) -> Found:
        return Found(Route("*", "/", ours.echo, "x", right, TokenPlace.ANYWHERE), owner)

    for right in (*ALL_BUT_ADMIN, RIGHTS):
        assert access.admit(found(right, ours), None, "open") is OPEN
    assert access.admit(Found(Route("*", "/", ours.echo, "x", *PUBLIC), ours), None, "open") is OPEN
    for right in (Right.ADMIN, {"offline": Right.ADMIN}):
        with pytest.raises(Forbidden):
            access.admit(found(right, ours), None, "open")
    assert (guests.asked, ignored) == ([], [])
    assert access.admit(found(Right.SEND, ours), TOKEN, "open") is OPEN
    assert (guests.asked, ignored) == ([], [None])
    for owner in (others, None):
        with pytest.raises(Unauthorized):
            access.admit(found(Right.SEND, owner), None, "open")
        assert access.admit(found(Right.SEND, owner), TOKEN, "open") == WITH_TOKEN


def test_its_grant_never_ends_and_that_of_a_token_does() -> None:
    guests = Guests(TOKEN)
    access = DialectAccess(guests, {Probe(): OPEN})
    guests.tokens.clear()
    assert (access.holds(OPEN), access.refusal(OPEN)) == (True, None)
    assert access.holds(WITH_TOKEN) is False
    assert isinstance(access.refusal(WITH_TOKEN), Unauthorized)
    assert access.fingerprint(b"head") == guests.fingerprint(b"head")
