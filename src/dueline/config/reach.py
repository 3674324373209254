"""Who can reach a server: its addresses, and what they need before other machines may use them.

    loopback      nothing
    beyond        tokens and TLS, and no dialect whose callers need no token at all; or server.insecure

An error says which lines of the configuration make it right. No I/O.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

import msgspec

from ..dialects.settings import ForeignSettings
from .errors import ConfigError
from .settings import Settings


class Address(msgspec.Struct, frozen=True):
    """An address to listen on. Port 0: any free port."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, path: str) -> Address:
    """HOST:PORT or [IPV6]:PORT."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:/\[\]]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > 65_535:
        raise ConfigError(f"{path}: must be HOST:PORT, such as 127.0.0.1:9277 or [::1]:9277, not {text!r}")
    return Address(found[1] or found[2], int(found[3]))


def check_callers(settings: Settings) -> None:
    """Check the dialects' `auth` against the rest of the configuration. Raises ConfigError."""
    by_address: dict[str, tuple[str, tuple[object, ...]]] = {}
    for name, section in _foreign(settings).items():
        path = f"dialects.{name}"
        if section.auth in ("header", "path") and settings.server.auth == "none":
            raise ConfigError(
                f'{path}.auth = "{section.auth}": a token would have no effect, because server.auth is "none". Set '
                'server.auth = "tokens", or remove this line'
            )
        if section.auth == "network" and section.listen == settings.server.listen:
            raise ConfigError(f'{path}.listen: auth = "network" needs another address than server.listen')
        if section.listen is None or not section.is_served(settings.server.auth == "tokens"):
            continue
        networks = section.parsed_networks()  # empty: everyone may connect
        first, others = by_address.setdefault(section.listen, (path, networks))
        if networks != others:
            raise ConfigError(f"{path}.networks: must be the same as {first}.networks, because they share an address")


def check_reach(settings: Settings, foreign_names: Mapping[str, str]) -> None:
    """Refuse an address that other machines can reach, unless it is protected. Raises ConfigError. `foreign_names`: how
    keys are called in the file of another delay queue that set them."""
    server = settings.server
    served = settings.served()
    for section, listen in _addresses(settings).items():
        path = foreign_names.get(f"{section}.listen", f"{section}.listen")
        address = parse_address(listen, path)
        if address.loopback or server.insecure or (section != "server" and section.split(".")[1] not in served):
            continue
        if server.auth != "tokens" or server.tls.cert is None:
            raise ConfigError(_unprotected(settings, section, path, address))
        for name, one in _foreign(settings).items():
            if name in served and one.auth == "none" and (one.listen or server.listen) == listen:
                raise ConfigError(
                    f'dialects.{name}.auth = "none": others could reach {listen}, and this dialect would let everyone '
                    'in. Set auth = "header", "path" or "network"; or give it an address of this machine, such as '
                    'listen = "127.0.0.1:9278"; or set --insecure (server.insecure = true) if everyone who can reach '
                    "it may use it."
                )


def open_addresses(settings: Settings) -> list[str]:
    """The addresses that other machines can reach without protection (server.insecure), each with what is missing."""
    server, served = settings.server, settings.served()
    missing = [
        *([] if server.auth == "tokens" else ["tokens"]),
        *([] if server.tls.cert is not None else ["TLS"]),
    ]
    used = {
        parse_address(listen, section)
        for section, listen in _addresses(settings).items()
        if section == "server" or section.split(".")[1] in served
    }
    beyond = sorted(str(address) for address in used if not address.loopback)
    return [f"{address} without {' and '.join(missing)}" for address in beyond] if missing else []


def _addresses(settings: Settings) -> dict[str, str]:
    """Section -> the address that it names."""
    own = {f"dialects.{name}": one.listen for name, one in _foreign(settings).items() if one.listen is not None}
    return {"server": settings.server.listen, **own}


def _foreign(settings: Settings) -> dict[str, ForeignSettings]:
    sections = settings.dialects.by_name().items()
    return {name: one for name, one in sections if isinstance(one, ForeignSettings)}


def _unprotected(settings: Settings, section: str, path: str, address: Address) -> str:
    """The error for an address without tokens or TLS, with the lines that add them."""
    tls = settings.server.tls
    listen = _line("listen", str(address))
    lines = ["[server]", *([listen] if section == "server" else []), _line("auth", "tokens")]
    lines += ["", "[server.tls]", _line("cert", tls.cert or "/etc/dueline/cert.pem")]
    lines += [_line("key", tls.key or "/etc/dueline/key.pem")]
    if section != "server":
        one = _foreign(settings)[section.partition(".")[2]]
        lines += ["", f"[{section}]", listen, _line("auth", "path" if one.auth in (None, "none") else one.auth)]
        lines += [_line("networks", list(one.networks))] if one.networks else []
    shown = "\n".join(f"    {line}" if line else "" for line in lines)
    return (
        f"{path} = {address}: others could reach this address, so it needs tokens and TLS. Configure\n\n{shown}\n\n"
        f"or listen on 127.0.0.1:{address.port} (behind a proxy that authenticates clients), or set --insecure "
        "(server.insecure = true) if everyone who can reach it may read and change every job."
    )


def _line(key: str, value: object) -> str:
    return f"{key} = {msgspec.json.encode(value).decode()}"
