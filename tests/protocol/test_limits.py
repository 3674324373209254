"""What one address, one namespace and one token may use of a front. Each limit refuses, and others are served."""

from __future__ import annotations

import hashlib

from dueline.config.settings import NamespaceLimits
from dueline.dialects.http import NotGranted
from dueline.rights import EVERYTHING, Grant, Right, TokenLimits
from dueline.server.client_addresses import Refusal
from dueline.server.front import FrontLimits
from dueline.server.quotas import Quotas
from dueline.server.router import Found

from ..kit.raw_http import Answer, RawClient
from .kit import OK, FrontKit, OpenKit, assert_error

A, B, C = "127.0.0.2", "127.0.0.3", "127.0.0.4"
HEALTH = b"GET /alive HTTP/1.1\r\nHost: x\r\n\r\n"


def own(namespace: str = "n", path: str = "/own", token: str = "") -> bytes:
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nDueline-Namespace: {namespace}\r\n{bearer}\r\n".encode()


def assert_limited(answer: Answer, *words: str) -> None:
    assert_error(answer, 429, "rate_limited")
    assert int(answer.headers["retry-after"]) >= 1
    message = answer.json()["error"]["message"]
    assert all(word in message for word in words), message


async def served(client: RawClient) -> bool:
    return (await client.ask(OK)).status == 200


# -- addresses


async def test_an_address_has_a_share_of_the_connections_and_others_are_served(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections=10, max_connections_per_address=2)) as front_kit:
        inside = [await front_kit.client(source=A) for _ in range(2)]
        assert [await served(client) for client in inside] == [True, True]
        outside = await front_kit.client(source=A)
        assert_limited(await outside.ask(OK), "2 connections", "server.max_connections_per_address")
        assert await outside.closed() == b""
        assert await served(await front_kit.client(source=B))
        assert [await served(client) for client in inside] == [True, True]
        assert front_kit.front.addresses.refused["max_connections_per_address"] == 1


async def test_a_place_of_the_share_is_free_when_a_connection_ends(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections_per_address=1)) as front_kit:
        first = await front_kit.client(source=A)
        assert await served(first)
        first.close()
        await front_kit.empty()
        assert await served(await front_kit.client(source=A))


async def test_health_is_answered_when_an_address_has_used_its_share(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections_per_address=1)) as front_kit:
        assert await served(await front_kit.client(source=A))
        for _ in range(5):
            checking = await front_kit.client(source=A)
            assert (await checking.ask(HEALTH)).status == 204
            assert await checking.closed() == b""  # it keeps no connection


async def test_health_is_answered_when_all_connections_are_taken(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections=2)) as front_kit:
        for source in (A, B):
            assert await served(await front_kit.client(source=source))
        outside = await front_kit.client(source=C)
        assert_error(await outside.ask(OK), 503, "too_many_connections")
        for _ in range(40):
            assert (await (await front_kit.client(source=C)).ask(HEALTH)).status == 204


async def test_silent_clients_do_not_take_the_connections_for_health_checks(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections=1)) as front_kit:
        assert await served(await front_kit.client(source=A))
        silent = [await front_kit.client(source=B) for _ in range(40)]
        checking = await front_kit.client(source=C)
        assert (await checking.ask(HEALTH)).status == 204
        assert await silent[0].closed() == b""  # it gave way: one address has two of them
        assert (await silent[-1].ask(HEALTH)).status == 204


async def test_the_address_with_the_most_gives_up_an_idle_connection(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections=4)) as front_kit:
        crowd = [await front_kit.client(source=A) for _ in range(3)]
        for client in crowd:
            assert await served(client)
        neighbour = await front_kit.client(source=B)
        assert await served(neighbour)
        newcomer = await front_kit.client(source=C)
        assert await served(newcomer)
        assert await crowd[0].closed() == b""  # idle for the longest time
        assert [await served(client) for client in (*crowd[1:], neighbour, newcomer)] == [True] * 4


async def test_a_busy_connection_is_not_given_up(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections=2)) as front_kit:
        busy = [await front_kit.client(source=A) for _ in range(2)]
        for client in busy:
            front_kit.probe.parked.clear()
            await client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
            await front_kit.probe.parked.wait()
        outside = await front_kit.client(source=B)
        assert_error(await outside.ask(OK), 503, "too_many_connections")
        front_kit.probe.release.set()
        assert [(await client.answer()).status for client in busy] == [200, 200]


async def test_an_address_has_a_share_of_unfinished_requests_and_idle_connections_are_not_counted(
    open_kit: OpenKit,
) -> None:
    async with open_kit(FrontLimits(max_unfinished_per_address=2)) as front_kit:
        idle = [await front_kit.client(source=A) for _ in range(5)]
        for client in idle:
            assert await served(client)
        begun = [await front_kit.client(source=A) for _ in range(2)]
        for client in begun:
            await client.send(OK[:20])
        await until_unfinished(front_kit, 2)
        third = await front_kit.client(source=A)
        await third.send(OK[:20])
        assert_limited(await third.answer(), "2 unfinished requests", "server.max_unfinished_per_address")
        assert await third.closed() == b""
        assert [await served(client) for client in idle] == [True] * 5
        other = await front_kit.client(source=B)
        await other.send(OK[:20])
        assert (await other.ask(OK[20:])).status == 200
        assert [(await client.ask(OK[20:])).status for client in begun] == [200, 200]
        assert front_kit.front.addresses.in_use()[Refusal.UNFINISHED][1] == 0


async def test_an_unfinished_body_counts_and_the_refusal_comes_after_earlier_answers(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_unfinished_per_address=1)) as front_kit:
        first = await front_kit.client(source=A)
        assert await served(first)  # its handshake is done
        second = await front_kit.client(source=A)
        assert await served(second)
        await first.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe")
        await until_unfinished(front_kit, 1)
        await second.send(OK + OK[:20])
        assert (await second.answer()).status == 200
        assert_limited(await second.answer(), "1 unfinished requests")
        assert (await first.ask(b"llo")).json()["body"] == "hello"


async def until_unfinished(front_kit: FrontKit, number: int) -> None:
    """Until the front has read the beginning of so many requests of one address."""
    other = await front_kit.client(source=C)
    assert await served(other)  # its handshake is done
    while front_kit.front.addresses.in_use()[Refusal.UNFINISHED][1] < number:
        assert await served(other)


# -- namespaces


async def test_a_namespace_has_so_many_requests_and_others_are_served(open_kit: OpenKit) -> None:
    quotas = Quotas({"n": NamespaceLimits(requests_per_s=0.001)})
    async with open_kit(quotas=quotas) as front_kit:
        client = await front_kit.client()
        for _ in range(10):  # parsed, then known
            assert (await client.ask(own())).status == 200
        for _ in range(2):
            answer = await client.ask(own())
            assert_limited(answer, '"n"', "0.001 requests per second", "namespaces.n.requests_per_s")
        assert int(answer.headers["retry-after"]) > 900
        assert (await client.ask(own("m"))).status == 200
        assert len(front_kit.probe.seen) == 11
        assert (await client.ask(OK)).status == 200  # public
        fresh = await front_kit.client()
        assert_limited(await fresh.ask(own().replace(b"Host: x", b"Host: x\r\nX: parsed, not known")))
        long = own().replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 100000\r\n\r\n")
        assert_limited(await fresh.ask(long))  # before the body
        assert await fresh.closed() == b""


async def test_the_row_of_every_namespace_holds_for_each_of_those_without_one(open_kit: OpenKit) -> None:
    quotas = Quotas({"*": NamespaceLimits(requests_per_s=0.001), "free": NamespaceLimits()})
    async with open_kit(quotas=quotas) as front_kit:
        client = await front_kit.client()
        for name in ("a", "b"):
            answers = [await client.ask(own(name)) for _ in range(11)]
            assert [answer.status for answer in answers] == [200] * 10 + [429]
            assert_limited(answers[-1], f'"{name}"', "namespaces.*.requests_per_s")
        assert [(await client.ask(own("free"))).status for _ in range(20)] == [200] * 20


async def test_a_namespace_has_so_many_connections(open_kit: OpenKit) -> None:
    quotas = Quotas({"n": NamespaceLimits(max_connections=2), "m": NamespaceLimits()})
    async with open_kit(quotas=quotas) as front_kit:
        first, second, third = [await front_kit.client() for _ in range(3)]
        assert [(await one.ask(own())).status for one in (first, second, first)] == [200, 200, 200]
        assert_limited(await third.ask(own()), "2 connections", "namespaces.n.max_connections")
        assert await third.closed() == b""
        assert (await second.ask(own("m"))).status == 200  # it counts for another namespace now
        fourth = await front_kit.client()
        assert (await fourth.ask(own())).status == 200
        assert_limited(await second.ask(own()))
        fourth.close()
        await front_kit.empty(but=1)
        assert (await (await front_kit.client()).ask(own())).status == 200


async def test_a_namespace_has_so_many_polls(open_kit: OpenKit) -> None:
    quotas = Quotas({"n": NamespaceLimits(max_polls=1)})
    async with open_kit(quotas=quotas) as front_kit:
        waiting, other, more = [await front_kit.client() for _ in range(3)]
        await waiting.send(own(path="/own/park"))
        await front_kit.probe.parked.wait()
        assert_limited(await other.ask(own(path="/own/park")), "1 polls", "namespaces.n.max_polls")
        assert (await other.ask(own())).status == 200  # the connection goes on
        front_kit.probe.parked.clear()
        await more.send(own("m", "/own/park"))
        await front_kit.probe.parked.wait()
        front_kit.probe.release.set()
        assert [(await one.answer()).status for one in (waiting, more)] == [200, 200]
        assert (await other.ask(own(path="/own/park"))).status == 200


# -- tokens


class Named:
    """Every token is valid. Some have limits."""

    def __init__(self, **limits: TokenLimits) -> None:
        self._limits = limits

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        return (
            EVERYTHING
            if token is None
            else Grant(frozenset({Right.ADMIN}), token_id=token, generation=1, limits=self._limits.get(token))
        )

    def holds(self, grant: Grant) -> bool:
        return True

    def refusal(self, grant: Grant) -> None:
        return None

    def fingerprint(self, head: bytes) -> bytes:
        return hashlib.blake2b(head, key=b"of this process").digest()


class Bound(Named):
    """Every token is valid in the namespace "mine" only."""

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        grant = Grant(frozenset({Right.ADMIN}), "mine", token_id=token or "", generation=1)
        if namespace != "mine":
            raise NotGranted("no", grant)
        return grant


async def test_refused_calls_about_another_namespace_count_for_the_tokens_own(open_kit: OpenKit) -> None:
    limits = {name: NamespaceLimits(requests_per_s=0.001) for name in ("mine", "theirs")}
    async with open_kit(auth=Bound(), quotas=Quotas(limits)) as front_kit:
        client = await front_kit.client()
        assert [(await client.ask(own("theirs", token="a"))).status for _ in range(10)] == [403] * 10
        assert_limited(await client.ask(own("theirs", token="a")), '"mine"', "requests_per_s")
        assert_limited(await client.ask(own("mine", token="a")), '"mine"', "requests_per_s")


async def test_a_token_has_limits_over_all_its_namespaces_beside_theirs(open_kit: OpenKit) -> None:
    auth = Named(small=TokenLimits(requests_per_s=0.001, max_connections=1))
    quotas = Quotas({"n": NamespaceLimits(requests_per_s=0.0005)})
    async with open_kit(auth=auth, quotas=quotas) as front_kit:
        client = await front_kit.client()
        assert [(await client.ask(own("m", token="small"))).status for _ in range(8)] == [200] * 8
        assert [(await client.ask(own("n", token="small"))).status for _ in range(2)] == [200] * 2
        assert_limited(await client.ask(own("m", token="small")), "token small", "requests_per_s")
        assert_limited(await (await front_kit.client()).ask(own("m", token="small")), "1 connections")
        assert [(await client.ask(own("n", token="big"))).status for _ in range(8)] == [200] * 8
        assert_limited(await client.ask(own("n", token="big")), '"n"', "namespaces.n.requests_per_s")
        assert (await client.ask(own("m", token="big"))).status == 200
