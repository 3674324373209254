"""What the dialect must be told about outgoing calls: it knows no push package. The wiring (server/app) gives these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ...engine.errors import DuelineError
from ...engine.push_checks import check_url

T = TypeVar("T")


def _fine(_: object) -> None:
    """Nothing is wrong with it."""


class PushRules(msgspec.Struct, frozen=True):
    """Each check returns nothing or raises: `url` an EgressRefused (403), the others an InvalidField that says why.
    The name of the field is put in by the caller. `mask` is how a secret is shown."""

    url: Callable[[str], object] = _fine
    headers: Callable[[Sequence[tuple[str, str]]], object] = _fine
    secret: Callable[[str], object] = _fine
    mask: Callable[[str], str] = lambda secret: f"whsec_...{secret[-4:]}"


def check_callable(rules: PushRules, url: str, field: str) -> None:
    """A URL at all (400), and one that this server may call as far as can be known before the call (403)."""
    check_url(url, field)
    named(field, rules.url, url)


def named(field: str, check: Callable[[T], object], value: T) -> None:
    """Run a check that may not know how the field is called here."""
    try:
        check(value)
    except DuelineError as error:
        if error.field is None or field not in error.field:
            error.field = field
        raise
