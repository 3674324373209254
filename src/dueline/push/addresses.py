"""Which addresses are public, and how an address may be spelled. No I/O.

An explicit list, because the standard library's notion of "global" has holes that change with the Python version
(NAT64, 6to4, the documentation prefix 3fff::/20, site-local, Azure's 168.63.129.16). For IPv6 everything outside
2000::/3 is refused, including blocks that are not assigned yet; the list only supplies the reason.

An IPv6 address may embed an IPv4 address (mapped, NAT64, 6to4, Teredo, ISATAP). The embedded address is checked too:
allowing a translation prefix does not allow the addresses behind it.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA = frozenset(
    {
        IPv4Address("169.254.169.254"),  # AWS, Google, Azure, Oracle, DigitalOcean and others
        IPv4Address("169.254.170.2"),  # AWS: credentials of a container
        IPv4Address("169.254.170.23"),  # AWS: credentials of a pod
        IPv4Address("100.100.100.200"),  # Alibaba
        IPv4Address("168.63.129.16"),  # Azure's wire server; it looks like a public address
        IPv4Address("192.0.0.192"),  # Oracle, old
        IPv6Address("fd00:ec2::254"),  # AWS
        IPv6Address("fd00:ec2::23"),  # AWS: credentials of a pod
        IPv6Address("fd20:ce::254"),  # Google
        IPv6Address("fd00:42::42"),  # Scaleway
    }
)
"""Metadata services, where clouds hand out credentials. Only an address or a network on the allow-list opens one;
a host name never does."""

_PUBLIC_V6 = IPv6Network("2000::/3")

_DENIED: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(block), reason)
    for block, reason in (
        ("0.0.0.0/8", "an address of this host"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "an address of a carrier's own network"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "an address for protocol assignments"),
        ("192.0.2.0/24", "an address for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "an address for benchmarks"),
        ("198.51.100.0/24", "an address for documentation"),
        ("203.0.113.0/24", "an address for documentation"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", "an address of this host"),
        ("::1/128", "a loopback address"),
        ("::/96", "an IPv4 address inside an IPv6 address"),
        ("::ffff:0:0:0/96", "an IPv4 address inside an IPv6 address"),
        ("64:ff9b::/96", "a NAT64 address"),
        ("64:ff9b:1::/48", "a NAT64 address"),
        ("100::/64", "a discard address"),
        ("100:0:0:1::/64", "a discard address"),
        ("2001::/32", "a Teredo address"),
        ("2001:2::/48", "an address for benchmarks"),
        ("2001:db8::/32", "an address for documentation"),
        ("2001::/23", "an address for protocol assignments"),
        ("2002::/16", "a 6to4 address"),
        ("3ffe::/16", "a reserved address"),
        ("3fff::/20", "an address for documentation"),
        ("5f00::/16", "a segment routing address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
    )
)

_TRANSLATED = tuple(IPv6Network(b) for b in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96"))

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)


def plain(address: Address) -> Address:
    """The address that packets are sent to: IPv4 for an IPv4-mapped IPv6 address. The zone is removed."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        return IPv6Address(int(address))
    return address


def inner(address: Address) -> IPv4Address | None:
    """The IPv4 address embedded in an IPv6 address of a translation or tunnel scheme, where its position is fixed."""
    if not isinstance(address, IPv6Address):
        return None
    number = int(address)
    low = IPv4Address(number & 0xFFFF_FFFF)
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if (number >> 32) & 0xFFFF_FFFF in (0x5EFE, 0x0200_5EFE):  # ISATAP, under any prefix
        return low
    if number <= 1:  # "::" and "::1" are not IPv4-compatible addresses
        return None
    return low if any(address in block for block in _TRANSLATED) else None


def why_not_public(address: Address) -> str | None:
    """Why an address is not public, phrased to follow "is"; None when it is public."""
    address = plain(address)
    if address in METADATA:
        return "an address of a cloud's metadata service"
    for network, reason in _DENIED:
        if address in network:
            return reason
    if isinstance(address, IPv6Address):
        if address not in _PUBLIC_V6:
            return "a reserved address"
        within = inner(address)
        return why_not_public(within) if within is not None else None
    return None


def looks_numeric(host: str) -> bool:
    """Whether a host can only be an IPv4 address: its last label is a number, which no DNS name has."""
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def read_ipv4(host: str) -> IPv4Address | None:
    """Parse an IPv4 address in any spelling that a C library accepts: 1 to 4 parts, each decimal, octal (0...) or
    hexadecimal (0x...); the last part fills the remaining bytes. None when it is not an address."""
    parts = host.split(".")
    if len(parts) > 4:
        return None
    numbers: list[int] = []
    for part in parts:
        if _NUMBER.fullmatch(part) is None or len(part) > 64:
            return None
        try:
            if part[:2] in ("0x", "0X"):
                numbers.append(int(part[2:] or "0", 16))
            else:
                numbers.append(int(part, 8 if len(part) > 1 and part[0] == "0" else 10))
        except ValueError:  # an 8 or 9 in an octal number
            return None
    *heads, last = numbers
    if any(number > 255 for number in heads) or last >= 256 ** (4 - len(heads)):
        return None
    return IPv4Address(sum(number << (24 - 8 * place) for place, number in enumerate(heads)) + last)
