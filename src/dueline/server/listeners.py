"""Which addresses a server listens on, and which dialects each of them serves.

    server.listen                native, and every dialect without an address of its own
    dialects.<name>.listen       that dialect only; two dialects may share an address

The parent opens the sockets and hands them to its workers by position, always in the order of `addresses`.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator

from ..config.reach import Address, parse_address
from ..config.settings import Settings

BACKLOG = 2048


class CannotListen(Exception):
    """The server cannot listen on an address. Exit code 1."""


def addresses(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Address -> names of its dialects. The main address comes first, even if it has none."""
    found: dict[str, tuple[str, ...]] = {settings.server.listen: ()}
    for name, dialect in settings.served().items():
        listen = getattr(dialect, "listen", None) or settings.server.listen
        found[listen] = (*found.get(listen, ()), name)
    return found


@contextlib.contextmanager
def opened(settings: Settings) -> Generator[list[socket.socket]]:
    """A listening socket for each address, in order. Raises CannotListen with the address."""
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        for text in addresses(settings):
            address = parse_address(text, "listen")
            try:
                sockets.append(stack.enter_context(open_listener(address)))
            except OSError as error:
                raise CannotListen(f"cannot listen on {address}: {error.strerror or error}") from None
        yield sockets


def open_listener(address: Address) -> socket.socket:
    """A listening socket without SO_REUSEPORT, so that a second server fails with "address in use"."""
    family, kind, proto, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def url_of(settings: Settings, listener: socket.socket) -> str:
    """The URL of this socket, with the actual port if port 0 was asked for."""
    host, port = listener.getsockname()[:2]
    return f"{settings.server.scheme}://{Address(host, port)}"


def elsewhere(settings: Settings, sockets: list[socket.socket]) -> str:
    """Text for the ready line: the dialects with an address of their own, and their URLs. Empty when there are none."""
    own = list(zip(addresses(settings).values(), sockets, strict=True))[1:]
    return "".join(f", {' and '.join(names)} on {url_of(settings, listener)}" for names, listener in own)
