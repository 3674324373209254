"""What the dialect must be told about outgoing calls: it knows no push package. The wiring (server/app) gives these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec


def _fine(_: object) -> None:
    """Nothing is wrong with it."""


class PushRules(msgspec.Struct, frozen=True):
    """Each check returns nothing or raises: `url` an EgressRefused (403), the others an InvalidField that says why.
    The name of the field is put in by the caller. `mask` is how a secret is shown."""

    url: Callable[[str], object] = _fine
    headers: Callable[[Sequence[tuple[str, str]]], object] = _fine
    secret: Callable[[str], object] = _fine
    mask: Callable[[str], str] = lambda secret: f"whsec_...{secret[-4:]}"
