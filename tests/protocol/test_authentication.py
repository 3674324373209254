"""What a front does with the token of a request: it is checked at the head, and goes no further."""

from __future__ import annotations

import hashlib

import pytest

from dueline.engine.errors import DuelineError, Forbidden, Unauthorized, Unavailable
from dueline.rights import EVERYTHING, Grant, Right
from dueline.server.authentication import OpenAccess
from dueline.server.router import Found

from .kit import OpenKit, assert_error

TOKEN = "dl_abc123_" + "s" * 43
PARK = f"GET /own/park HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


class Guests:
    """Accepts the tokens that it is given, and forgets one on request."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = {*tokens}
        self.rotated = False  # the tokens were changed and are still valid
        self.error: DuelineError | None = None  # nothing can be checked
        self.asked: list[str | None] = []

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        self.asked.append(token)
        if found.route.right is Right.NONE:
            return EVERYTHING
        if token is None or token not in self.tokens:
            raise Unauthorized
        if found.route.name == "other":
            raise Forbidden
        return Grant(frozenset({Right.ADMIN}), token_id=token)

    def holds(self, grant: Grant) -> bool:
        return grant is EVERYTHING or (grant.token_id in self.tokens and not self.rotated and self.error is None)

    def refusal(self, grant: Grant) -> DuelineError | None:
        return self.error if grant is EVERYTHING or grant.token_id in self.tokens else Unauthorized()

    def fingerprint(self, head: bytes) -> bytes:
        return hashlib.blake2b(head, key=b"of this process").digest()


def head(path: str = "/own", length: int = 5, token: str | None = TOKEN, more: str = "") -> bytes:
    bearer = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{bearer}{more}Content-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("path", ["/own", f"/{TOKEN}/own", f"//{TOKEN}/own", f"http://x/{TOKEN}/own"])
async def test_a_token_stands_in_a_header_or_before_the_path_and_the_handler_does_not_see_it(
    path: str, open_kit: OpenKit
) -> None:
    async with open_kit(auth=Guests(TOKEN)) as front_kit:
        client = await front_kit.client()
        for _ in range(2):  # parsed, then known
            answer = await client.ask(head(path, token=None if TOKEN in path else TOKEN) + b"hello")
            assert (answer.status, answer.json()["path"], answer.json()["body"]) == (200, "/own", "hello")
            assert TOKEN not in answer.body.decode()
        assert [request.grant.token_id for request in front_kit.probe.seen] == [TOKEN, TOKEN]
        assert [request.address for request in front_kit.probe.seen] == ["127.0.0.1", "127.0.0.1"]


async def test_a_caller_without_a_valid_token_is_refused_and_may_go_on(open_kit: OpenKit) -> None:
    async with open_kit(auth=Guests(TOKEN)) as front_kit:
        client = await front_kit.client()
        for token in (None, "dl_abc123_wrong"):
            answer = await client.ask(head(token=token) + b"hello")
            assert_error(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await client.ask(head() + b"hello")).status == 200  # the refused bodies were skipped
        assert len(front_kit.probe.seen) == 1


@pytest.mark.parametrize("more", ["", "Expect: 100-continue\r\n"])
async def test_a_refused_caller_with_a_large_body_is_answered_before_it_is_read(more: str, open_kit: OpenKit) -> None:
    async with open_kit(auth=Guests()) as front_kit:
        client = await front_kit.client()
        answer = await client.ask(head(length=1_000_000, more=more))
        assert_error(answer, 401, "unauthorized")
        assert answer.headers["connection"] == "close"


async def test_credentials_of_another_kind_are_no_token(open_kit: OpenKit) -> None:
    basic = "Authorization: Basic YTpi\r\n"
    async with open_kit(auth=Guests(TOKEN)) as front_kit:
        client = await front_kit.client()
        assert_error(await client.ask(head(token=None, more=basic) + b"hello"), 401, "unauthorized")
        assert (await client.ask(head(f"/{TOKEN}/own", token=None, more=basic) + b"hello")).status == 200
        assert_error(await client.ask(head(f"/{TOKEN}/own", token="dl_a_b") + b"hello"), 401, "unauthorized")
        twice = head(more=f"Authorization: Bearer {TOKEN}\r\n")
        assert_error(await client.ask(twice + b"hello"), 401, "unauthorized")


async def test_a_token_without_the_word_bearer_is_no_token(open_kit: OpenKit) -> None:
    bare = f"Authorization: {TOKEN}\r\n"
    async with open_kit(auth=Guests(TOKEN)) as front_kit:
        client = await front_kit.client()
        assert_error(await client.ask(head(token=None, more=bare) + b"hello"), 401, "unauthorized")
    async with open_kit() as front_kit:  # checks no tokens
        assert (await (await front_kit.client()).ask(head(token=None, more=bare) + b"hello")).status == 200


async def test_a_token_before_the_path_counts_only_where_the_route_takes_it(open_kit: OpenKit) -> None:
    async with open_kit(auth=Guests(TOKEN)) as front_kit:
        client = await front_kit.client()
        assert_error(
            await client.ask(f"GET /{TOKEN}/own/park HTTP/1.1\r\nHost: x\r\n\r\n".encode()), 401, "unauthorized"
        )


async def test_a_known_head_is_refused_as_soon_as_its_token_is_revoked(open_kit: OpenKit) -> None:
    guests = Guests(TOKEN)
    async with open_kit(auth=guests) as front_kit:
        client = await front_kit.client()
        assert (await client.ask(head() + b"hello")).status == 200
        assert (await client.ask(head() + b"hello")).status == 200
        assert len(guests.asked) == 1  # the second head was known
        guests.tokens.clear()
        assert_error(await client.ask(head() + b"hello"), 401, "unauthorized")


async def test_a_body_that_ends_after_the_token_was_revoked_is_refused(open_kit: OpenKit) -> None:
    guests = Guests(TOKEN)
    async with open_kit(auth=guests) as front_kit:
        client = await front_kit.client()
        await client.send(head() + b"hel")
        other = await front_kit.client()
        assert (await other.ask(head() + b"hello")).status == 200  # so the first part was read, too
        guests.tokens.clear()
        assert_error(await client.ask(b"lo"), 401, "unauthorized")
        assert len(front_kit.probe.seen) == 1


async def test_a_parked_poll_ends_when_its_token_is_revoked_and_others_stay(open_kit: OpenKit) -> None:
    other_token = TOKEN + "2"
    guests = Guests(TOKEN, other_token)
    async with open_kit(auth=guests) as front_kit:
        polls = [await front_kit.client() for _ in range(2)]
        for client, token in zip(polls, (TOKEN, other_token), strict=True):
            front_kit.probe.parked.clear()
            await client.send(f"GET /own/park HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            await front_kit.probe.parked.wait()
        guests.tokens.remove(TOKEN)
        front_kit.front.recheck()
        assert_error(await polls[0].answer(), 401, "unauthorized")
        front_kit.probe.release.set()
        assert (await polls[1].answer()).status == 200


async def test_a_poll_whose_token_ended_unnoticed_gets_no_job(open_kit: OpenKit) -> None:
    """A server that was stopped may have a job for a poll before it hears that the token was revoked."""
    guests = Guests(TOKEN)
    async with open_kit(auth=guests) as front_kit:
        client = await front_kit.client()
        await client.send(PARK)
        await front_kit.probe.parked.wait()
        guests.tokens.clear()
        front_kit.probe.release.set()
        assert_error(await client.answer(), 401, "unauthorized")
        await front_kit.probe.undelivered.wait()


async def test_a_poll_stays_while_tokens_cannot_be_checked(open_kit: OpenKit) -> None:
    guests = Guests(TOKEN)
    async with open_kit(auth=guests) as front_kit:
        client = await front_kit.client()
        await client.send(PARK)
        await front_kit.probe.parked.wait()
        guests.error = Unavailable("Tokens cannot be checked now.")
        front_kit.front.recheck()
        guests.error = None
        front_kit.probe.release.set()
        assert (await client.answer()).status == 200


async def test_a_changed_token_that_is_still_valid_ends_nothing(open_kit: OpenKit) -> None:
    guests = Guests(TOKEN)
    async with open_kit(auth=guests) as front_kit:
        client = await front_kit.client()
        await client.send(PARK)
        await front_kit.probe.parked.wait()
        guests.rotated = True
        front_kit.front.recheck()
        other = await front_kit.client()
        for _ in range(2):
            assert (await other.ask(head() + b"hello")).status == 200
        assert len(guests.asked) == 3  # no head is known
        front_kit.probe.release.set()
        assert (await client.answer()).status == 200


async def test_a_request_that_waited_behind_others_is_refused_if_its_token_was_revoked_meanwhile(
    open_kit: OpenKit,
) -> None:
    other_token = TOKEN + "2"
    guests = Guests(TOKEN, other_token)
    async with open_kit(auth=guests) as front_kit:
        client = await front_kit.client()
        poll = f"GET /own/park HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {other_token}\r\n\r\n".encode()
        await client.send(poll + head() + b"hello" + head(token=other_token) + b"hello")
        await front_kit.probe.parked.wait()
        guests.tokens.remove(TOKEN)
        front_kit.front.recheck()
        front_kit.probe.release.set()
        assert [(await client.answer()).status for _ in range(3)] == [200, 401, 200]
        assert len(front_kit.probe.seen) == 2


async def test_the_cache_of_heads_holds_no_token(open_kit: OpenKit) -> None:
    for auth in (Guests(TOKEN), OpenAccess()):
        async with open_kit(auth=auth) as front_kit:
            client = await front_kit.client()
            for path, token in (("/own", TOKEN), (f"/{TOKEN}/own", None), ("/own", None)):
                await client.ask(head(path, token=token) + b"hello")
            heads = [*front_kit.front.heads.exact.items(), *front_kit.front.heads.templates.items()]
            assert heads  # else nothing was looked at
            kept = repr([(key, known.path, dict(known.headers)) for key, known in heads])
            assert "host" in kept  # it shows headers
            assert TOKEN.split("_", 2)[2] not in kept


async def test_without_tokens_everyone_may_do_everything_and_a_token_is_noticed(open_kit: OpenKit) -> None:
    noticed: list[None] = []
    async with open_kit(auth=OpenAccess(lambda: noticed.append(None))) as front_kit:
        client = await front_kit.client()
        for path, token in (("/own", TOKEN), (f"/{TOKEN}/own", None), ("/own", None), ("/own", "not one, two")):
            assert (await client.ask(head(path, token=token) + b"hello")).status == 200
    assert len(noticed) == 3
