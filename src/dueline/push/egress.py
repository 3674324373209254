"""The egress rule: which URLs and addresses the server may call. Every outgoing call passes it. No I/O.

    check_url(url)                      checks everything that needs no lookup: scheme, userinfo, port, name, a literal
                                        address in any spelling. Runs when a URL is set or sent, so that its author
                                        gets an early error, and again for every hop of every call.
    check_address(address, port, host)  the decisive check. Runs with the numeric address of every socket, right before
                                        it connects. Earlier lookups of the name do not matter, so DNS rebinding
                                        gains nothing.

The host is brought into its canonical form (IDNA, lower case, canonical address), and the URL is rebuilt from it. So
the connection goes to the host that was checked, even if another parser would read the same text differently.

The allow-list opens networks (for every call to them) and names (whatever the name resolves to, but only for calls to
that name). A namespace may have a list of its own (`of`), which only narrows: its calls pass the rule, and also go to a
network or name of that list. A token may have one, too (TokenList). It is asked when a URL is set or sent, and a job
does not know which token that was; so a name must be in the list, whatever it resolves to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import quote, urlsplit

import idna
import msgspec

from ..engine.errors import EgressRefused, InvalidField
from .addresses import METADATA, Address, Network, inner, looks_numeric, plain, read_ipv4, why_not_public

MAX_HOST_CHARS = 253
MAX_LABEL_CHARS = 63
MAX_URL_CHARS = 8192
DENIED_NAMES = ("metadata.google.internal", "metadata", "*.internal")

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII)
_UNSENDABLE = re.compile(r"[\x00-\x20\x7f\\]")
_PATH_SAFE = "!#$%&'()*+,/:;=?@[]~|^`{}\"<>"  # printable ASCII is sent as written
_LOOPBACKS = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


EVERY_NAMESPACE = "*"


class Destination(msgspec.Struct, frozen=True):
    """A URL that passed the checks on its text. `url` is canonical and has no fragment. `address` is set if the host is
    a literal address."""

    url: str
    scheme: str
    host: str
    port: int
    address: Address | None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


class Egress:
    """The rule, as configured.

    `allow`: networks ("10.0.0.0/8", "127.0.0.1") and names ("billing.corp", "*.corp"), each on every port.
    `ports`: the ports allowed everywhere else; empty allows all. `deny_names`: refused whatever they resolve to.
    An exact name takes precedence over a pattern; between equals, allow wins. `namespaces`: the only networks and names
    that calls of a namespace may go to; EVERY_NAMESPACE is for those without a list.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        ports: Iterable[int] = (),
        deny_names: Iterable[str] = DENIED_NAMES,
        namespaces: Mapping[str, Iterable[str]] = {},
    ) -> None:
        """Raises InvalidField for an entry that is neither a network nor a name."""
        self._networks, self._allowed = _networks_and_names(allow, "allow")
        self._narrowed = {name: NarrowedEgress(self, name, entries) for name, entries in namespaces.items()}
        self._denied = _Names([_pattern(name, "deny_names") for name in deny_names])
        self._ports = frozenset(ports)
        if not all(1 <= port <= 65535 for port in self._ports):
            raise InvalidField("a port is 1 to 65535", "ports")

    def of(self, namespace: str) -> Egress:
        """The rule for the calls of a namespace."""
        return self._narrowed.get(namespace) or self._narrowed.get(EVERY_NAMESPACE) or self

    def check_url(self, url: str, field: str = "url") -> Destination:
        """The URL as it will be called. Raises InvalidField if it is not a URL, EgressRefused if it may not be
        called."""
        destination = _read(url, field)
        host, address = destination.host, destination.address
        try:
            if address is not None:
                self.check_address(address, destination.port)
            elif not self._named(host):
                self._check_name(host)
                if self._ports and destination.port not in self._ports and not self._networks:
                    raise EgressRefused(f"port {destination.port} is not allowed")  # with networks, connecting decides
        except EgressRefused as refused:
            refused.field = field
            raise
        return destination

    def check_address(self, address: Address | str, port: int, host: str | None = None) -> None:
        """Raise EgressRefused unless a socket may be connected to `address`, for a call to `host`."""
        objection = self.objection(address, port, host)
        if objection is not None:
            raise EgressRefused(f"{address} is {objection}")

    def objection(self, address: Address | str, port: int, host: str | None = None) -> str | None:
        """Why `address` may not be connected to, phrased to follow "is" and without naming the address; None if it is
        allowed. Text that is not a numeric address is refused, because the system would look it up."""
        try:
            address = plain(ip_address(address) if isinstance(address, str) else address)
        except ValueError:
            return "not a numeric address"
        if self._opens(address):
            within = inner(address)
            return None if within is None or self._opens(within) else why_not_public(within)
        if host is not None and address not in METADATA and self._named(host):
            return None
        reason = why_not_public(address)
        if reason is None and self._ports and port not in self._ports:
            return f"on port {port}, which is not allowed"
        return reason

    def _opens(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _named(self, host: str) -> bool:
        """Whether the allow-list opens this name and no more specific entry denies it."""
        if host in self._allowed.exact:
            return True
        return host not in self._denied.exact and self._allowed.has_pattern_of(host)

    def _check_name(self, host: str) -> None:
        if host == "localhost" or host.endswith(".localhost"):  # allowed when a loopback address is
            if not any(map(self._opens, _LOOPBACKS)):
                raise EgressRefused(f"{host} is this machine itself")
        elif host in self._denied.exact or self._denied.has_pattern_of(host):
            raise EgressRefused(f"{host} is a denied name")


class NarrowedEgress(Egress):
    """The rule for one namespace: `base`, and its own list."""

    def __init__(self, base: Egress, namespace: str, only: Iterable[str]) -> None:
        self._base = base
        self._reason = f"outside of namespaces.{namespace}.push_allow"
        self._only_networks, self._only_names = _networks_and_names(only, f"namespaces.{namespace}.push_allow")

    def of(self, namespace: str) -> Egress:
        return self

    def check_url(self, url: str, field: str = "url") -> Destination:
        destination = self._base.check_url(url, field)
        address, host = destination.address, destination.host
        if address is not None:
            objection = self.objection(address, destination.port)
        else:  # with networks, connecting decides
            objection = None if self._only_networks or self._lists(host) else self._reason
        if objection is not None:
            raise EgressRefused(f"{host} is {objection}", field)
        return destination

    def objection(self, address: Address | str, port: int, host: str | None = None) -> str | None:
        objection = self._base.objection(address, port, host)
        if objection is not None or (host is not None and self._lists(host)):
            return objection
        numeric = plain(ip_address(address) if isinstance(address, str) else address)
        within = inner(numeric)
        is_listed = self._in_networks(numeric) and (within is None or self._in_networks(within))
        return None if is_listed else self._reason

    def _in_networks(self, address: Address) -> bool:
        return any(address in network for network in self._only_networks)

    def _lists(self, host: str) -> bool:
        return host in self._only_names.exact or self._only_names.has_pattern_of(host)


class TokenList:
    """Where a caller may direct pushes: the networks and names in the list of its token."""

    def __init__(self, entries: Iterable[str], field: str = "push_allow") -> None:
        """Raises InvalidField for an entry that is neither a network nor a name."""
        self._networks, self._names = _networks_and_names(entries, field)

    def check(self, destination: Destination) -> None:
        """Raises EgressRefused."""
        address = destination.address
        if address is None:
            self._check_name(destination.host)
            return
        within = inner(address)
        if not self._opens(address) or not (within is None or self._opens(within)):
            self._refuse(destination.host)

    def check_service(self, service: str) -> None:
        """Raises EgressRefused. The name of a service must be in the list like that of a host."""
        self._check_name(service.lower())

    def _check_name(self, name: str) -> None:
        if name not in self._names.exact and not self._names.has_pattern_of(name):
            self._refuse(name)

    def _refuse(self, host: str) -> None:
        raise EgressRefused(f"{host} is not in limits.push_allow of the token")

    def _opens(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


@lru_cache(256)  # a caller that sends jobs with URLs asks again and again
def token_list(entries: tuple[str, ...]) -> TokenList:
    """The list of a token, which was checked when the token was made."""
    return TokenList(entries)


def check_token_list(entries: Sequence[str]) -> None:
    """Raises InvalidField for an entry that is neither a network nor a name."""
    TokenList(entries)


def _networks_and_names(entries: Iterable[str], field: str) -> tuple[list[Network], _Names]:
    networks: list[Network] = []
    names: list[str] = []
    for entry in entries:
        network = _network(entry, field)
        if network is None:
            names.append(_pattern(entry, field))
        else:
            networks.append(network)
    return networks, _Names(names)


class _Names:
    """Names and "*.suffix" patterns."""

    def __init__(self, names: Iterable[str]) -> None:
        self.exact = frozenset(name for name in names if not name.startswith("*."))
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    def has_pattern_of(self, host: str) -> bool:
        return host.endswith(self._suffixes)


def shown(url: str) -> str:
    """A URL for display and logs: without userinfo, query and fragment, which may contain secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    if not parts.scheme or not parts.netloc:
        return "(not a URL)"
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return "".join(c if c.isprintable() else "?" for c in shown[:512])


@lru_cache(256)  # a target is called again and again
def _read(url: str, field: str) -> Destination:
    """Parse a URL once and rebuild it in its canonical form."""
    if len(url) > MAX_URL_CHARS:
        raise InvalidField(f"must have at most {MAX_URL_CHARS} characters", field)
    if _UNSENDABLE.search(url):
        raise InvalidField("has a space, a backslash or a control character", field)
    try:
        parts = urlsplit(url)
        path, query = _ascii(parts.path), _ascii(parts.query)
    except ValueError:
        raise InvalidField("is not a URL", field) from None
    if not parts.scheme or not parts.netloc:
        raise InvalidField("is not an absolute URL", field)
    if parts.scheme not in _DEFAULT_PORTS:
        raise EgressRefused(f"only http and https are allowed, not {parts.scheme}", field)
    if "@" in parts.netloc:
        raise EgressRefused("a URL must not contain a user or password; send them in a header of the target", field)
    host, address, port = _authority(parts.netloc, field)
    number = _DEFAULT_PORTS[parts.scheme] if port is None else port
    netloc = (f"[{host}]" if ":" in host else host) + ("" if number == _DEFAULT_PORTS[parts.scheme] else f":{number}")
    canonical = f"{parts.scheme}://{netloc}{path or '/'}" + (f"?{query}" if query else "")
    return Destination(canonical, parts.scheme, host, number, address)


def _ascii(text: str) -> str:
    """Percent-encode non-ASCII characters. Raises ValueError for a lone surrogate."""
    return text if text.isascii() else quote(text, safe=_PATH_SAFE)


def _authority(netloc: str, field: str) -> tuple[str, Address | None, int | None]:
    """The host in its canonical form, its address if it is a literal one, and the port if given."""
    if netloc.startswith("["):
        literal, bracket, rest = netloc[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidField("has a broken IPv6 address", field)
        address = _read_ipv6(literal, field)
        return str(address), address, _port(rest[1:], field)
    host, _, digits = netloc.partition(":")
    port = _port(digits, field)
    name = _canonical_name(host, field)
    if not looks_numeric(name):
        return name, None, port
    address = read_ipv4(name)
    if address is None:
        raise InvalidField("has a host that is neither a name nor an address", field)
    return str(address), address, port


def _read_ipv6(literal: str, field: str) -> Address:
    if "%" in literal:
        raise EgressRefused("an address with a zone belongs to a local network interface", field)
    try:
        return plain(IPv6Address(literal))
    except ValueError:
        raise InvalidField("has a broken IPv6 address", field) from None


def _port(digits: str, field: str) -> int | None:
    if not digits:
        return None
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 8 and 1 <= int(digits) <= 65535):
        raise InvalidField("has a port that is not 1 to 65535", field)
    return int(digits)


def _canonical_name(host: str, field: str) -> str:
    """The name in lower-case ASCII without a trailing dot; full-width and circled characters become plain ones."""
    if not host.isascii():
        try:
            host = idna.uts46_remap(host, std3_rules=False)
            if not host.isascii():
                host = idna.encode(host, uts46=True).decode("ascii")
        except UnicodeError:
            raise InvalidField("has an invalid host name", field) from None
    host = host.lower().removesuffix(".")
    if not _NAME.fullmatch(host):
        raise InvalidField("has an invalid host name", field)
    if len(host) > MAX_HOST_CHARS or max(map(len, host.split("."))) > MAX_LABEL_CHARS:
        raise InvalidField(
            f"has a host longer than {MAX_HOST_CHARS} or a label longer than {MAX_LABEL_CHARS} characters", field
        )
    return host


def _network(entry: str, field: str) -> Network | None:
    """An entry of the allow-list as a network, or None when it can only be a name."""
    try:
        return ip_network(entry)
    except ValueError as error:
        if "host bits" in str(error):
            raise InvalidField(f'"{entry}" has bits set after its prefix: write {_masked(entry)}', field) from None
    if "/" in entry or ":" in entry or looks_numeric(entry):
        raise InvalidField(f'"{entry}" is neither a network nor a host name', field)
    return None


def _masked(entry: str) -> Network:
    return ip_network(entry, strict=False)


def _pattern(entry: str, field: str) -> str:
    """A name, or "*." and a name."""
    star, name = ("*.", entry[2:]) if entry.startswith("*.") else ("", entry)
    try:
        return star + _canonical_name(name, field)
    except InvalidField:
        raise InvalidField(f'"{entry}" is neither a network nor a host name', field) from None
