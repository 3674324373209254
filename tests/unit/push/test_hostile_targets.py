"""No target of the table gets a socket: not by its spelling, not by a name server, not by a redirect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import pytest

from dueline.engine.errors import EgressRefused, InvalidField
from dueline.push.egress import Egress
from dueline.push.outgoing_calls import Call

from .egress_kit import Recorder, Table, calling, failing, saying, serving, unguarded
from .hostile import BROKEN, FORMS, LITERALS, NAMES, RESOLVED

PUBLIC = "93.184.216.34"  # never connected to: the recorder stands in between


def host_of(url: str) -> str:
    """As the look-up will ask for it."""
    return unguarded().check_url(url).host


async def attempt(url: str, addresses: Sequence[str], egress: Egress) -> tuple[str, list[str], list[str]]:
    """How a call ended, the addresses of the sockets that it asked for, and the names that it looked up."""
    recorder = Recorder()
    names = Table({host_of(url): addresses} if addresses else {})
    async with calling(egress, names, make_socket=recorder) as outgoing:
        failed = await failing(outgoing, Call("POST", url, body=b"{}"))
    return failed.kind, [address for address, _ in recorder.sockets], names.asked


def test_the_table_is_not_shorter_than_it_was_meant_to_be() -> None:
    assert len(LITERALS) >= 70
    assert len(LITERALS) + len(RESOLVED) + len(NAMES) + len(FORMS) + len(BROKEN) >= 140


@pytest.mark.parametrize(("url", "meant"), LITERALS)
async def test_an_address_is_refused_in_every_spelling_when_it_is_set_and_when_it_is_called(
    url: str, meant: str
) -> None:
    with pytest.raises(EgressRefused) as refused:
        Egress().check_url(url, "url")
    assert (refused.value.code, refused.value.field) == ("egress_refused", "url")
    assert await attempt(url, [], Egress()) == ("refused", [], [])
    # The control: the same call without the guard asks for a socket to exactly the address that the spelling means.
    assert await attempt(url, [], unguarded()) == ("connect", [meant], [])


@pytest.mark.parametrize(("url", "addresses"), RESOLVED)
async def test_a_name_is_refused_by_what_it_resolves_to(url: str, addresses: list[str]) -> None:
    Egress().check_url(url)  # nothing is known against the name itself
    name = host_of(url)
    assert await attempt(url, addresses, Egress()) == ("refused", [], [name])
    kind, sockets, _ = await attempt(url, addresses, unguarded())
    assert (kind, set(sockets)) == ("connect", set(addresses))


@pytest.mark.parametrize(("url", "addresses"), NAMES)
async def test_some_names_are_not_even_looked_up(url: str, addresses: list[str]) -> None:
    with pytest.raises(EgressRefused):
        Egress().check_url(url)
    assert await attempt(url, addresses, Egress()) == ("refused", [], [])
    kind, sockets, _ = await attempt(url, addresses, unguarded())
    assert (kind, sockets) == ("connect", addresses)


@pytest.mark.parametrize(("url", "addresses"), NAMES)
async def test_those_names_are_refused_by_their_addresses_too(url: str, addresses: list[str]) -> None:
    kind, sockets, _ = await attempt(url, addresses, Egress(deny_names=()))
    assert (kind, sockets) == ("refused", [])


@pytest.mark.parametrize(("url", "reason"), FORMS)
async def test_a_url_of_a_form_that_is_not_called_is_refused_with_the_reason(url: str, reason: str) -> None:
    for egress in (Egress(), unguarded()):
        with pytest.raises(EgressRefused) as refused:
            egress.check_url(url, "on_dead.url")
        assert (refused.value.message, refused.value.field) == (reason, "on_dead.url")

    recorder = Recorder()
    async with calling(unguarded(), make_socket=recorder) as outgoing:
        assert ((await failing(outgoing, Call("POST", url))).kind, recorder.sockets) == ("refused", [])


@pytest.mark.parametrize("url", BROKEN)
async def test_what_is_no_url_is_a_bad_field_and_never_looked_up(url: str) -> None:
    with pytest.raises(InvalidField) as refused:
        unguarded().check_url(url, "url")
    assert refused.value.field == "url"

    recorder, names = Recorder(), Table()
    async with calling(unguarded(), names, make_socket=recorder) as outgoing:
        assert ((await failing(outgoing, Call("POST", url))).kind, recorder.sockets, names.asked) == ("refused", [], [])


async def redirected(location: str, egress: Egress) -> tuple[str, list[str], list[str]]:
    """Call a server that is allowed by its name and that sends us on to `location`."""

    value = location.encode("utf-8")
    async with serving(saying(b"HTTP/1.1 307 Away\r\nLocation: " + value + b"\r\nContent-Length: 0\r\n\r\n")) as port:
        recorder = Recorder([port])
        names = Table({"start.example": ["127.0.0.1"]} | {host_of(u): a for u, a in RESOLVED + NAMES})
        async with calling(egress, names, make_socket=recorder, follow_redirects=3) as outgoing:
            failed = await failing(outgoing, Call("POST", f"http://start.example:{port}/hook", body=b"{}"))
    return failed.kind, [address for address, _ in recorder.sockets], names.asked[1:]


@pytest.mark.parametrize(("location", "meant"), LITERALS)
async def test_a_redirect_to_an_address_is_refused_as_a_call_is(location: str, meant: str) -> None:
    assert await redirected(location, Egress(["start.example"])) == ("refused", [], [])


@pytest.mark.parametrize("location", [url for url, _ in RESOLVED + NAMES])
async def test_a_redirect_to_a_name_is_refused_as_a_call_is(location: str) -> None:
    kind, sockets, asked = await redirected(location, Egress(["start.example"]))
    unasked = location in {url for url, _ in NAMES}
    assert (kind, sockets, asked) == ("refused", [], [] if unasked else [host_of(location)])


async def test_the_redirects_of_the_table_are_really_followed_without_the_guard() -> None:
    assert await redirected("http://0x7f.1:1/", unguarded()) == ("connect", ["127.0.0.1"], [])
    assert await redirected("http://link.example/", unguarded()) == ("connect", ["169.254.169.254"], ["link.example"])


async def test_a_redirect_back_to_the_server_itself_by_its_address_is_refused() -> None:
    """The name is open, its address is not: the very same server."""

    calls = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        await reader.readuntil(b"\r\n\r\n")
        calls += 1
        writer.write(b"HTTP/1.1 308 X\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % port)
        await writer.drain()

    async with (
        serving(talk) as port,
        calling(Egress(["start.example"]), Table({"start.example": ["127.0.0.1"]}), follow_redirects=3) as outgoing,
    ):
        failed = await failing(outgoing, Call("POST", f"http://start.example:{port}/"))
    assert (failed.kind, calls) == ("refused", 1)


async def test_an_answer_that_changes_between_check_and_connect_gains_nothing() -> None:
    recorder = Recorder()
    names = Table({"rebind.example": [[PUBLIC], ["127.0.0.1"]]})
    egress = Egress()
    egress.check_url("http://rebind.example/")
    checked = [str(address) for address in await names.addresses("rebind.example")]  # somebody checks: public
    egress.check_address(checked[0], 80, "rebind.example")
    async with calling(egress, names, make_socket=recorder) as outgoing:
        failed = await failing(outgoing, Call("POST", "http://rebind.example/"))
    assert (checked, failed.kind, recorder.sockets) == ([PUBLIC], "refused", [])


async def test_of_several_addresses_only_those_that_may_be_called_are_tried() -> None:
    kind, sockets, _ = await attempt("http://mixed.example/", ["127.0.0.1", PUBLIC, "::1", "10.0.0.1"], Egress())
    assert (kind, set(sockets)) == ("connect", {PUBLIC})


async def test_an_answer_that_is_no_numeric_address_is_never_handed_to_the_system() -> None:
    assert (await attempt("http://odd.example/", ["localhost"], unguarded()))[:2] == ("refused", [])


async def test_a_refused_name_does_not_tell_its_address() -> None:
    async with calling(Egress(), Table({"intranet.example": ["10.11.12.13"]})) as outgoing:
        message = (await failing(outgoing, Call("POST", "http://intranet.example"))).message
    assert message == "http://intranet.example: intranet.example may not be called there: it is a private address"


async def test_spellings_of_loopback_reach_a_real_server_when_it_is_allowed() -> None:
    """That the guard is what refuses: all of these are loopback for real."""
    loopback = [url for url, meant in LITERALS if meant == "127.0.0.1" and urlsplit(url).scheme == "http"]

    assert len(loopback) >= 20
    statuses: set[int] = set()
    async with (
        serving(saying(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")) as port,
        calling(Egress(["127.0.0.0/8"])) as outgoing,
    ):
        for url in loopback:
            if not url.endswith(":6379/"):
                statuses.add((await outgoing.call(Call("POST", f"{url[:-1]}:{port}/"))).status)
    assert statuses == {204}
