"""Which addresses a server listens on, and which dialects are spoken at each.

    server.listen                native, and every dialect without an address of its own
    dialects.<name>.listen       that dialect only; two dialects may name one address

The order is that of `addresses`: sockets are opened by the parent and handed on by place.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator

import msgspec

from ..config.load import Address, parse_address
from ..config.settings import Settings

BACKLOG = 2048


class CannotListen(Exception):
    """An address cannot be had. Exit code 1."""


def addresses(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Address -> names of the enabled dialects there. The main address is the first one, also when it has none."""
    found: dict[str, tuple[str, ...]] = {settings.server.listen: ()}
    for name in msgspec.structs.asdict(settings.dialects):
        dialect = getattr(settings.dialects, name)
        if dialect.enabled:
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
    """A listening socket that nobody shares: without SO_REUSEPORT a second server gets "address in use"."""
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


def url_of(listener: socket.socket) -> str:
    """Where clients reach it; tells the port that port 0 became."""
    host, port = listener.getsockname()[:2]
    return f"http://{Address(host, port)}"


def elsewhere(settings: Settings, sockets: list[socket.socket]) -> str:
    """For the ready line: the dialects that have an address of their own, and where. Empty when there are none."""
    own = list(zip(addresses(settings).values(), sockets, strict=True))[1:]
    return "".join(f", {' and '.join(names)} on {url_of(listener)}" for names, listener in own)
