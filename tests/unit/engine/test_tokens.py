"""Access tokens: who may make which, rotation, revocation, and what every server has confirmed when a call returns."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from msgspec.structs import replace

from dueline.engine.errors import (
    AlreadyDone,
    DuelineError,
    Forbidden,
    InvalidField,
    NotFound,
    StoreDown,
    TooManyTokens,
    UnknownOutcome,
)
from dueline.engine.timer import Timer
from dueline.engine.token_store import MAX_TOKENS
from dueline.engine.tokens import (
    EXPIRED_MS,
    LEASE_S,
    MARGIN_S,
    MAX_OF_NAMESPACE,
    OVERLAP_MS,
    RETAIN_MS,
    NewToken,
    Tokens,
    TokenSpec,
    token_hash,
    token_id,
)
from dueline.rights import EVERYTHING, Grant, Right, TokenLimits
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled

WAIT_MS = round((LEASE_S + MARGIN_S) * 1000)
WISH = TokenSpec("billing", (Right.PULL, Right.SEND), "shop", ("billing-*",))
ADMIN = TokenSpec("ops", (Right.ADMIN,), None)


class TokenKit:
    """The tokens of a store in memory, with time that a test moves."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.timer = VirtualTimer(self.clock)
        timer: Timer = self.timer
        self.store = MemoryStore(self.clock)
        self.tokens = Tokens(self.store, timer)

    async def made(self, wish: TokenSpec = WISH, caller: Grant = EVERYTHING) -> NewToken:
        return await self.tokens.make(wish, caller)

    async def accepts(self, made: NewToken) -> bool:
        """Whether the text is valid now, by what is stored."""
        token = await self.tokens.get(made.token.id, EVERYTHING)
        return token.secret(token_hash(made.text), self.clock()) is not None


def grant(made: NewToken) -> Grant:
    """What a server grants to the caller with this token."""
    token = made.token
    return Grant(
        frozenset(token.rights),
        token.namespace,
        token.topics,
        token.id,
        token.generation,
        token.name,
        limits=token.limits,
    )


async def test_a_new_token_is_stored_without_its_text() -> None:
    kit = TokenKit()
    made = await kit.made()
    assert re.fullmatch(r"dl_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", made.text)
    assert token_id(made.text) == made.token.id
    stored = await kit.store.tokens.get(made.token.id)
    assert stored is not None
    secret = made.text.split("_", 2)[2]
    assert secret.encode() not in stored.data
    assert [secret in repr(one) for one in (made, made.token, stored)] == [False] * 3
    shown = await kit.tokens.get(made.token.id, EVERYTHING)
    assert shown == made.token
    assert (shown.name, shown.rights, shown.namespace, shown.topics) == (
        "billing",
        (Right.SEND, Right.PULL),
        "shop",
        ("billing-*",),
    )
    assert await kit.accepts(made)
    assert (await kit.made()).text != made.text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "my dl_5d41402abc4b_" + "s" * 43}, "name"),
        ({"rights": ()}, "rights"),
        ({"rights": (Right.NONE,)}, "rights"),
        ({"topics": ()}, "topics"),
        ({"topics": ("a", "")}, "topics[1]"),
        ({"topics": tuple(map(str, range(65)))}, "topics"),
        ({"expires_at_ms": 1}, "expires_at_ms"),
    ],
)
async def test_a_wrong_wish_is_refused_and_stores_nothing(change: dict[str, Any], field: str) -> None:
    kit = TokenKit()
    with pytest.raises(InvalidField) as refused:
        await kit.made(replace(WISH, **change))
    assert refused.value.field == field
    assert await kit.tokens.list(EVERYTHING, 0, 10) == ([], None)


async def test_a_token_makes_only_tokens_that_may_do_no_more_than_itself() -> None:
    kit = TokenKit()
    bound = grant(await kit.made(replace(ADMIN, namespace="shop")))
    assert (await kit.made(WISH, bound)).token.namespace == "shop"
    refused: list[str | None] = []
    some_topics = grant(await kit.made(replace(ADMIN, topics=("a*",))))
    no_admin = grant(await kit.made(TokenSpec("reader", (Right.READ,), None)))
    for wish, caller in (
        (replace(WISH, namespace="other"), bound),
        (replace(WISH, namespace=None), bound),
        (WISH, some_topics),
        (WISH, no_admin),
    ):
        with pytest.raises(Forbidden) as error:
            await kit.made(wish, caller)
        refused.append(error.value.field)
    assert refused == ["namespace", "namespace", None, "rights"]


async def test_a_token_gives_out_nothing_that_directs_pushes_elsewhere() -> None:
    kit = TokenKit()
    free = await kit.made()
    own = ("10.0.0.0/8", "hooks.corp")
    caller = grant(await kit.made(replace(ADMIN, limits=TokenLimits(push_allow=own))))
    inherited = await kit.made(WISH, caller)
    assert inherited.token.limits == TokenLimits(push_allow=own)
    slow = replace(WISH, limits=TokenLimits(requests_per_s=5))
    assert (await kit.made(slow, caller)).token.limits == TokenLimits(requests_per_s=5, push_allow=own)
    less = TokenLimits(push_allow=("hooks.corp",))
    assert (await kit.made(replace(WISH, limits=less), caller)).token.limits == less
    for more in (TokenLimits(push_allow=("other.corp",)), TokenLimits(push_allow=(*own, "other.corp"))):
        with pytest.raises(Forbidden) as refused:
            await kit.made(replace(WISH, limits=more), caller)
        assert refused.value.field == "push_allow"
    with pytest.raises(Forbidden):
        await kit.tokens.rotate(free.token.id, 0, caller)
    assert await kit.accepts(free)
    await kit.tokens.rotate(inherited.token.id, 0, caller)


async def test_a_token_gives_out_nothing_that_outlives_it() -> None:
    kit = TokenKit()
    eternal = await kit.made()
    until_ms = kit.clock() + 1_000
    caller = grant(await kit.made(replace(ADMIN, expires_at_ms=until_ms)))
    assert (await kit.made(WISH, caller)).token.expires_at_ms == until_ms
    sooner = await kit.made(replace(WISH, expires_at_ms=until_ms - 1), caller)
    assert sooner.token.expires_at_ms == until_ms - 1
    await kit.tokens.rotate(sooner.token.id, 0, caller)
    with pytest.raises(Forbidden):
        await kit.made(replace(WISH, expires_at_ms=until_ms + 1), caller)
    with pytest.raises(Forbidden):
        await kit.tokens.rotate(eternal.token.id, 0, caller)
    await kit.tokens.revoke(eternal.token.id, caller)


async def test_an_admin_of_one_namespace_cannot_take_the_room_of_others() -> None:
    kit = TokenKit()
    bound = grant(await kit.made(replace(ADMIN, namespace="shop")))
    for _ in range(MAX_OF_NAMESPACE - 2):
        await kit.made()
    await kit.made(replace(WISH, namespace="other"))
    together = await asyncio.gather(*(kit.made(WISH, bound) for _ in range(3)), return_exceptions=True)
    assert [isinstance(one, TooManyTokens) for one in together] == [False, True, True]
    other = grant(await kit.made(replace(ADMIN, namespace="other")))
    assert await kit.made(replace(WISH, namespace="other"), other)


async def test_expired_tokens_give_way_in_a_full_namespace_and_revoked_ones_do_not() -> None:
    kit = TokenKit()
    bound = grant(await kit.made(replace(ADMIN, namespace="shop")))
    revoked = await kit.made()
    await kit.tokens.revoke(revoked.token.id, EVERYTHING)
    now_ms = kit.clock()
    later, sooner = [await kit.made(replace(WISH, expires_at_ms=now_ms + after_ms)) for after_ms in (9, 5)]
    for _ in range(MAX_OF_NAMESPACE - 4):
        await kit.made()
    with pytest.raises(TooManyTokens):
        await kit.made(WISH, bound)
    kit.clock.advance(EXPIRED_MS + 9)
    assert await kit.made(WISH, bound)
    with pytest.raises(NotFound):
        await kit.tokens.get(sooner.token.id, EVERYTHING)
    assert await kit.tokens.get(later.token.id, EVERYTHING)
    assert await kit.made(WISH, bound)
    with pytest.raises(TooManyTokens):
        await kit.made(WISH, bound)
    assert await kit.tokens.get(revoked.token.id, EVERYTHING)


async def test_expired_tokens_give_way_when_the_store_has_as_many_as_it_may() -> None:
    kit = TokenKit()
    ended = await kit.made(replace(WISH, expires_at_ms=kit.clock() + 1))
    for _ in range(MAX_TOKENS - 1):
        await kit.made()
    kit.clock.advance(EXPIRED_MS + 1)
    assert await kit.made()
    with pytest.raises(NotFound):
        await kit.tokens.get(ended.token.id, EVERYTHING)
    with pytest.raises(TooManyTokens):
        await kit.made()


async def test_an_admin_of_one_namespace_sees_and_changes_only_its_tokens() -> None:
    kit = TokenKit()
    bound = grant(await kit.made(replace(ADMIN, namespace="shop")))
    own = await kit.made(WISH)
    others = [await kit.made(replace(WISH, namespace=name)) for name in ("other", None)]
    listed, after = await kit.tokens.list(bound, 0, 10)
    assert ([token.id for token in listed], after) == ([bound.token_id, own.token.id], None)
    for made in others:
        for call in (
            kit.tokens.get(made.token.id, bound),
            kit.tokens.rotate(made.token.id, 0, bound),
            kit.tokens.revoke(made.token.id, bound),
        ):
            with pytest.raises(NotFound):
                await call
        assert await kit.accepts(made)
    await kit.tokens.revoke(own.token.id, bound)
    assert not await kit.accepts(own)


async def test_tokens_are_listed_in_pages_even_if_most_of_them_are_hidden() -> None:
    kit = TokenKit()
    bound = grant(await kit.made(replace(ADMIN, namespace="shop")))
    for n in range(9):
        await kit.made(replace(WISH, name=str(n), namespace="shop" if n % 3 == 0 else "other"))
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page, after = await kit.tokens.list(bound, after, 2)
        found += [token.name for token in page]
    assert found == ["ops", "0", "3", "6"]


async def test_a_rotated_token_has_two_secrets_until_the_overlap_ends() -> None:
    kit = TokenKit()
    first = await kit.made()
    second = await kit.tokens.rotate(first.token.id, OVERLAP_MS, EVERYTHING)
    assert second.token.id == first.token.id
    assert [await kit.accepts(one) for one in (first, second)] == [True, True]
    await kit.timer.advance(OVERLAP_MS - 1)
    assert [await kit.accepts(one) for one in (first, second)] == [True, True]
    await kit.timer.advance(1)
    assert [await kit.accepts(one) for one in (first, second)] == [False, True]


async def test_a_token_has_at_most_two_secrets() -> None:
    kit = TokenKit()
    first = await kit.made()
    second = await kit.tokens.rotate(first.token.id, OVERLAP_MS, EVERYTHING)
    third = await kit.tokens.rotate(first.token.id, OVERLAP_MS, EVERYTHING)
    assert [await kit.accepts(one) for one in (first, second, third)] == [False, True, True]
    assert len((await kit.tokens.get(first.token.id, EVERYTHING)).secrets) == 2
    fourth = await kit.tokens.rotate(first.token.id, 0, EVERYTHING)
    assert [await kit.accepts(one) for one in (first, second, third, fourth)] == [False, False, False, True]


async def test_a_revoked_or_expired_token_stays_so() -> None:
    kit = TokenKit()
    revoked, expired = await kit.made(), await kit.made(replace(WISH, expires_at_ms=kit.clock() + 10))
    ended = await kit.tokens.revoke(revoked.token.id, EVERYTHING)
    assert ended.revoked_at_ms == kit.clock()
    await kit.timer.advance(10)
    assert [await kit.accepts(one) for one in (revoked, expired)] == [False, False]
    for made in (revoked, expired):
        with pytest.raises(AlreadyDone):
            await kit.tokens.rotate(made.token.id, 0, EVERYTHING)
    assert await kit.tokens.revoke(revoked.token.id, EVERYTHING) == ended
    assert ended.secrets == ()


async def test_ended_tokens_are_kept_for_thirty_days() -> None:
    kit = TokenKit()
    revoked, expired = await kit.made(), await kit.made(replace(WISH, expires_at_ms=kit.clock() + 10))
    await kit.tokens.revoke(revoked.token.id, EVERYTHING)
    await kit.timer.advance(RETAIN_MS - 1)
    assert len((await kit.tokens.list(EVERYTHING, 0, 10))[0]) == 2
    await kit.timer.advance(1)
    assert (await kit.tokens.list(EVERYTHING, 0, 10))[0] == [expired.token]
    await kit.timer.advance(10)
    assert (await kit.tokens.list(EVERYTHING, 0, 10))[0] == []
    with pytest.raises(NotFound):
        await kit.tokens.get(expired.token.id, EVERYTHING)


async def test_a_wrong_id_is_not_found() -> None:
    kit = TokenKit()
    for id in ("", "nobody", "5d41402abc4b", "x" * 600):
        with pytest.raises(NotFound):
            await kit.tokens.get(id, EVERYTHING)


async def test_a_change_returns_when_every_server_has_confirmed_it() -> None:
    kit = TokenKit()
    made = await kit.made()
    for server in ("one", "two"):
        await kit.store.tokens.beat(server, made.token.generation)
    revoking = asyncio.ensure_future(kit.tokens.revoke(made.token.id, EVERYTHING))
    await kit.timer.advance(100)
    await kit.store.tokens.beat("one", made.token.generation + 1)
    await kit.timer.advance(100)
    assert not revoking.done()
    await kit.store.tokens.beat("two", made.token.generation + 1)
    await kit.timer.advance(100)
    assert revoking.done()


async def test_a_change_waits_for_the_lease_of_a_server_that_does_not_answer_and_then_forgets_it() -> None:
    kit = TokenKit()
    made = await kit.made()
    await kit.store.tokens.beat("stopped", made.token.generation)
    revoking = asyncio.ensure_future(kit.tokens.revoke(made.token.id, EVERYTHING))
    await kit.timer.advance(WAIT_MS - 60)
    assert not revoking.done()
    await kit.timer.advance(120)
    assert revoking.done()
    assert await kit.store.tokens.behind(99) == []


@pytest.mark.parametrize("change", ["make", "rotate", "revoke again"])
async def test_every_change_waits_for_the_servers(change: str) -> None:
    kit = TokenKit()
    made = await kit.made()
    await kit.store.tokens.beat("one", made.token.generation)
    if change == "revoke again":
        first = asyncio.ensure_future(kit.tokens.revoke(made.token.id, EVERYTHING))
        await settled()
        first.cancel()
    call = {
        "make": lambda: kit.made(),
        "rotate": lambda: kit.tokens.rotate(made.token.id, OVERLAP_MS, EVERYTHING),
        "revoke again": lambda: kit.tokens.revoke(made.token.id, EVERYTHING),
    }[change]
    calling = asyncio.ensure_future(call())
    await kit.timer.advance(500)
    assert not calling.done()
    await kit.store.tokens.beat("one", made.token.generation + 1)
    await kit.timer.advance(100)
    assert calling.done()


async def test_a_change_that_cannot_be_confirmed_is_of_unknown_outcome() -> None:
    kit = TokenKit()
    made = await kit.made()

    async def down(_: int) -> list[str]:
        raise StoreDown

    kit.store.tokens.behind = down
    with pytest.raises(UnknownOutcome):
        await kit.tokens.revoke(made.token.id, EVERYTHING)
    assert not await kit.accepts(made)


async def test_two_changes_at_once_both_happen() -> None:
    kit = TokenKit()
    made = await kit.made()
    rotated, revoked = await asyncio.gather(
        kit.tokens.rotate(made.token.id, OVERLAP_MS, EVERYTHING),
        kit.tokens.revoke(made.token.id, EVERYTHING),
        return_exceptions=True,
    )
    assert isinstance(rotated, NewToken | DuelineError)
    assert not isinstance(revoked, BaseException)
    assert not await kit.accepts(made)
