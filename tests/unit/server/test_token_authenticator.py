"""What a caller with a token may do: the token, the right, the namespace, and for how long that is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dueline.dialects.http import NotGranted, Request, Response, Route, TokenPlace
from dueline.engine.errors import DuelineError, Unauthorized, Unavailable
from dueline.engine.token_cache import TokenCache
from dueline.engine.tokens import LEASE_S, NewToken, Tokens, TokenSpec
from dueline.rights import ALL, EVERYTHING, Right
from dueline.server.router import Found
from dueline.server.token_authenticator import TokenAuthenticator
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer
from tests.kit.async_tests import async_fixture

WISH = TokenSpec("billing", (Right.SEND, Right.PULL), "shop", ("billing-*",))
ADMIN = TokenSpec("ops", (Right.ADMIN,), None)


async def _handler(_: Request) -> Response:
    raise NotImplementedError


def route(right: Right | Mapping[str, Right] = Right.SEND) -> Found:
    return Found(Route("POST", "/", _handler, "route", right, TokenPlace.HEADER), None)


class Gate:
    """One server's authenticator, on a store in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.timer = VirtualTimer(self.clock)
        self.store = MemoryStore(self.clock)
        self.tokens = Tokens(self.store, self.timer)
        self.cache = TokenCache(self.store, self.timer, clock=self.timer.time)
        self.auth = TokenAuthenticator(self.cache, self.store.now_ms)

    async def made(self, wish: TokenSpec = WISH) -> NewToken:
        """A token that this server has already heard of."""
        made = await self.tokens.make(wish, EVERYTHING)
        await self.timer.advance(0)
        return made

    def refused(self, token: str | None, right: Any = Right.SEND, namespace: str | None = None) -> DuelineError | None:
        try:
            self.auth.admit(route(right), token, namespace)
        except DuelineError as error:
            return error
        return None


@async_fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    await gate.cache.start()
    await gate.timer.advance(0)
    yield gate
    await gate.cache.stop()


@pytest.fixture(autouse=True)
def no_wait(gate: Gate) -> None:
    """Changes return at once: this server is not registered with the store, as if it were the only one."""

    async def nobody(generation: int) -> list[str]:
        return []

    gate.store.tokens.behind = nobody


async def test_a_grant_is_what_the_token_says(gate: Gate) -> None:
    made = await gate.made()
    grant = gate.auth.admit(route(), made.text, None)
    assert (grant.rights, grant.namespace, grant.topics) == ({Right.SEND, Right.PULL}, "shop", ("billing-*",))
    assert (grant.token_id, grant.generation, grant.name) == (made.token.id, made.token.generation, "billing")
    assert made.text.split("_", 2)[2] not in repr(grant)
    assert gate.auth.holds(grant)
    assert gate.auth.refusal(grant) is None


async def test_wrong_tokens_are_refused_in_the_same_words_whether_their_id_exists_or_not(gate: Gate) -> None:
    made = await gate.made()
    id, secret = made.token.id, made.text.split("_", 2)[2]
    wrong = [f"dl_{id}_{'A' * 43}", f"dl_{'0' * 12}_{'A' * 43}", f"dl_{id}_{secret[:-1]}", "nonsense", "", "dl_ü_ü"]
    refusals = [gate.refused(token) for token in wrong]
    assert [type(one) for one in refusals] == [Unauthorized] * len(wrong)
    assert len({str(one) for one in refusals}) == 1
    assert isinstance(gate.refused(None), Unauthorized)
    assert isinstance(gate.refused(made.text + "x"), Unauthorized)


@pytest.mark.parametrize(
    ("rights", "needed", "allowed"),
    [
        ((Right.SEND,), Right.SEND, True),
        ((Right.SEND,), Right.PULL, False),
        ((Right.READ, Right.PULL), Right.PULL, True),
        ((Right.ADMIN,), Right.PUSH, True),
        ((Right.MANAGE,), Right.ADMIN, False),
        ((Right.PULL,), {"add": Right.SEND, "pop": Right.PULL}, True),
        ((Right.READ,), {"add": Right.SEND, "pop": Right.PULL}, False),
    ],
)
async def test_the_right_of_the_route_is_needed(
    gate: Gate, rights: tuple[Right, ...], needed: Any, allowed: bool
) -> None:
    made = await gate.made(replace(WISH, rights=rights))
    refused = gate.refused(made.text, needed)
    assert (refused is None) is allowed
    if refused is not None:
        assert isinstance(refused, NotGranted)
        assert refused.grant.token_id == made.token.id
        assert all(right in str(refused) for right in ([needed] if isinstance(needed, Right) else needed.values()))


@pytest.mark.parametrize(
    ("own", "asked", "allowed"),
    [
        ("shop", None, True),
        ("shop", "shop", True),
        ("shop", "other", False),
        ("shop", ALL, False),
        (None, None, True),
        (None, "other", True),
        (None, ALL, True),
    ],
)
async def test_the_namespace_of_the_call_must_be_that_of_the_token(
    gate: Gate, own: str | None, asked: str | None, allowed: bool
) -> None:
    made = await gate.made(replace(WISH, namespace=own))
    refused = gate.refused(made.text, namespace=asked)
    assert (refused is None) is allowed
    assert refused is None or isinstance(refused, NotGranted)
    assert asked == ALL or refused is None or str(asked) in str(refused)


async def test_a_refusal_does_not_repeat_a_token_that_was_given_as_a_namespace(gate: Gate) -> None:
    made = await gate.made(replace(WISH, namespace="shop"))
    refused = gate.refused(made.text, namespace=made.text)
    assert f'"dl_{made.token.id}_***"' in str(refused)


async def test_public_routes_need_no_token_and_give_no_right(gate: Gate) -> None:
    for token in (None, "nonsense"):
        grant = gate.auth.admit(route(Right.NONE), token, ALL)
        assert grant.rights == set()
        assert gate.auth.holds(grant)
    await gate.cache.stop()
    assert gate.auth.holds(gate.auth.admit(route(Right.NONE), None, ALL))


async def test_a_revoked_token_is_refused_and_its_grants_end(gate: Gate) -> None:
    made, other = await gate.made(), await gate.made()
    grants = [gate.auth.admit(route(), one.text, None) for one in (made, other)]
    await gate.tokens.revoke(made.token.id, EVERYTHING)
    await gate.timer.advance(0)
    assert isinstance(gate.refused(made.text), Unauthorized)
    assert [gate.auth.holds(grant) for grant in grants] == [False, True]
    assert isinstance(gate.auth.refusal(grants[0]), Unauthorized)
    assert gate.auth.refusal(grants[1]) is None


async def test_a_rotated_token_is_valid_with_both_texts_until_the_overlap_ends(gate: Gate) -> None:
    old = await gate.made()
    before = gate.auth.admit(route(), old.text, None)
    new = await gate.tokens.rotate(old.token.id, 10_000, EVERYTHING)
    await gate.timer.advance(0)
    assert not gate.auth.holds(before)  # its head is read again
    assert gate.auth.refusal(before) is None  # but its poll stays
    grants = [gate.auth.admit(route(), one.text, None) for one in (old, new)]
    await gate.timer.advance(9_999)
    assert [gate.auth.holds(grant) for grant in grants] == [True, True]
    await gate.timer.advance(1)
    assert [gate.auth.holds(grant) for grant in grants] == [False, True]
    assert [type(gate.auth.refusal(grant)) for grant in (before, *grants)] == [Unauthorized, Unauthorized, type(None)]
    assert isinstance(gate.refused(old.text), Unauthorized)
    assert gate.refused(new.text) is None


async def test_a_token_rotated_without_overlap_ends_its_old_text_at_once(gate: Gate) -> None:
    old = await gate.made()
    before = gate.auth.admit(route(), old.text, None)
    await gate.tokens.rotate(old.token.id, 0, EVERYTHING)
    await gate.timer.advance(0)
    assert isinstance(gate.refused(old.text), Unauthorized)
    assert isinstance(gate.auth.refusal(before), Unauthorized)


async def test_an_expired_token_is_refused_and_its_grants_end(gate: Gate) -> None:
    made = await gate.made(replace(WISH, expires_at_ms=gate.clock() + 1_000))
    grant = gate.auth.admit(route(), made.text, None)
    await gate.timer.advance(999)
    assert gate.auth.holds(grant)
    await gate.timer.advance(1)
    assert not gate.auth.holds(grant)
    assert isinstance(gate.auth.refusal(grant), Unauthorized)
    assert isinstance(gate.refused(made.text), Unauthorized)


async def test_every_token_is_refused_for_now_while_this_server_does_not_hear_of_changes(gate: Gate) -> None:
    made = await gate.made()
    grant = gate.auth.admit(route(), made.text, None)

    async def down(server: str, confirmed: int) -> int:
        raise Unavailable

    gate.store.tokens.beat = down
    await gate.timer.advance(round(LEASE_S * 1000))
    for token in (made.text, "nonsense"):
        assert isinstance(gate.refused(token), Unavailable)
    assert not gate.auth.holds(grant)
    assert isinstance(gate.auth.refusal(grant), Unavailable)


async def test_heads_are_cached_under_a_hash_that_differs_between_processes(gate: Gate) -> None:
    head = b"POST / HTTP/1.1\r\nAuthorization: Bearer dl_a_b\r\n\r\n"
    assert gate.auth.fingerprint(head) == gate.auth.fingerprint(head)
    assert gate.auth.fingerprint(head) != gate.auth.fingerprint(head + b" ")
    assert gate.auth.fingerprint(head) != TokenAuthenticator(gate.cache, gate.clock).fingerprint(head)
    assert b"dl_" not in gate.auth.fingerprint(head)
