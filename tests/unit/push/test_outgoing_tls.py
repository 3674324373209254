"""Calls under TLS, with a certificate authority that lives as long as the test."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from dueline.push.egress import Egress
from dueline.push.outgoing_calls import Call, CallFailed, Response

from .egress_kit import Table, Talk, calling, saying, serving

ANSWERS = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server of another protocol, which speaks first."""
    writer.write(b"220 mail.example\r\n")
    await writer.drain()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def asked(
    certificate: trustme.LeafCert | None, tls: ssl.SSLContext | None, talk: Talk = ANSWERS
) -> Response | CallFailed:
    """What a call of https://shop.example comes to, at a server with this certificate (none: a plain one)."""
    options: dict[str, object] = {}
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(context)
        options["ssl"] = context
    names = Table({"shop.example": ["127.0.0.1"]})
    async with (
        serving(talk, **options) as port,
        calling(Egress(["127.0.0.0/8"]), names, tls=tls, follow_redirects=3) as outgoing,
    ):
        try:
            return await outgoing.call(Call("POST", f"https://shop.example:{port}/", body=b"{}"))
        except CallFailed as failed:
            return failed


def failure(result: Response | CallFailed) -> tuple[str, str]:
    assert isinstance(result, CallFailed), result
    return result.kind, result.message.partition("/: ")[2]


async def test_a_certificate_of_a_trusted_authority_for_the_name_is_good(authority: trustme.CA) -> None:
    result = await asked(authority.issue_cert("shop.example"), trusting(authority))
    assert isinstance(result, Response)
    assert (result.status, result.excerpt) == (200, "ok")


async def test_a_certificate_of_an_unknown_authority_is_not(authority: trustme.CA) -> None:
    result = await asked(authority.issue_cert("shop.example"), tls=None)
    assert failure(result) == ("connect", "the certificate of shop.example is not trusted")


async def test_a_certificate_for_another_name_is_not(authority: trustme.CA) -> None:
    result = await asked(authority.issue_cert("other.example", "127.0.0.1"), trusting(authority))
    assert failure(result) == ("connect", "the certificate of shop.example is not trusted")


async def test_a_port_that_speaks_no_tls_has_the_error_of_a_closed_one(authority: trustme.CA) -> None:
    result = await asked(None, trusting(authority), greet)
    assert failure(result) == ("connect", "cannot connect to shop.example")


async def test_what_was_sent_under_tls_is_not_repeated_in_the_open(authority: trustme.CA) -> None:
    away = b"HTTP/1.1 307 X\r\nLocation: http://shop.example/\r\nContent-Length: 0\r\n\r\n"
    result = await asked(authority.issue_cert("shop.example"), trusting(authority), saying(away))
    assert isinstance(result, Response)
    assert (result.status, result.headers["location"]) == (307, "http://shop.example/")
