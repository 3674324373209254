"""The settings that all dialects share. A dialect's own keys are in its package (`settings`); config.settings makes the
section [dialects] from the table of dialects. No I/O."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class DialectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One wire protocol."""

    enabled: Annotated[bool, Meta(description="Whether this dialect is served.")] = True

    def check(self) -> None:
        """Check the rules that types cannot express. Raises InvalidField with the name of the key."""


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
