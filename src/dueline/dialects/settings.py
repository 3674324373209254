"""The settings that all dialects share. A dialect's own keys are in its package (`settings`); config.settings makes the
section [dialects] from the table of dialects. No I/O."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..engine.errors import InvalidField
from ..engine.limits import INTERNAL_NAMESPACE

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class DialectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One wire protocol."""

    enabled: Annotated[bool, Meta(description="Whether this dialect is served.")] = True

    def check(self) -> None:
        """Check the rules that types cannot express. Raises InvalidField with the name of the key."""

    def is_served(self, tokens: bool) -> bool:
        """`tokens`: whether the server checks tokens."""
        return self.enabled


Namespace = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9._:-]{1,128}$",
        description="Where its jobs are kept. Two dialects with the same namespace share their jobs.",
    ),
]


class ForeignSettings(DialectSettings, frozen=True, forbid_unknown_fields=True):
    """The protocol of another delay queue. If it has an address of its own, it is served only there."""

    namespace: Namespace = "default"
    listen: Annotated[
        str | None,
        Meta(description="An address of its own, HOST:PORT or [IPV6]:PORT; the dialect is then served only there."),
    ] = None
    auth: Annotated[
        Literal["header", "path", "network", "none"] | None,
        Meta(
            description="Who may call. header: callers with a token in the Authorization header. path: also callers "
            "with the token in front of the path (/dl_ID_SECRET/...). network: callers in one of `networks`; needs a "
            "`listen` of its own. none: everyone. network and none give all rights except admin in the dialect's "
            'namespace. Empty: the dialect is off if server.auth is "tokens", else it is open to everyone.'
        ),
    ] = None
    networks: Annotated[
        tuple[str, ...],
        Meta(
            description='For auth = "network": the networks ("10.1.0.0/16") and addresses that may connect to '
            "`listen`; other connections are closed."
        ),
    ] = ()

    def check(self) -> None:
        if self.namespace == INTERNAL_NAMESPACE:
            raise InvalidField("is reserved for the server", "namespace")
        networks = self.parsed_networks()
        if self.auth == "network":
            if self.listen is None:
                raise InvalidField('auth = "network" needs an address of its own, such as "127.0.0.1:8080"', "listen")
            if not networks:
                raise InvalidField('auth = "network" needs at least one network, such as ["10.1.0.0/16"]', "networks")
        elif networks:
            raise InvalidField('has no effect without auth = "network"', "networks")

    def is_served(self, tokens: bool) -> bool:
        return self.enabled and (self.auth is not None or not tokens)

    def parsed_networks(self) -> tuple[Network, ...]:
        """Raises InvalidField."""
        try:
            networks = tuple(ipaddress.ip_network(text) for text in self.networks)
        except ValueError as error:
            raise InvalidField(f"{error}; write a network such as 10.1.0.0/16, or an address", "networks") from None
        for network in networks:
            if network.prefixlen == 0:
                raise InvalidField(f'{network} is every address; that is auth = "none"', "networks")
        return networks
