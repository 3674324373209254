"""The checks of push targets. The dialect does not import the push package, so server/app passes them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ...engine.errors import DuelineError
from ...engine.push_checks import check_url

T = TypeVar("T")


def _fine(_: object) -> None:
    """Accept anything."""


class PushRules(msgspec.Struct, frozen=True):
    """Each check returns nothing or raises: `url` raises EgressRefused (403), the others InvalidField with the reason.
    The caller adds the name of the field. `mask` returns the form in which a secret is shown."""

    url: Callable[[str], object] = _fine
    headers: Callable[[Sequence[tuple[str, str]]], object] = _fine
    secret: Callable[[str], object] = _fine
    mask: Callable[[str], str] = lambda secret: f"whsec_...{secret[-4:]}"


def check_callable(rules: PushRules, url: str, field: str) -> None:
    """Check that this is a URL (400) and that the server may call it, as far as is known before the call (403)."""
    check_url(url, field)
    named(field, rules.url, url)


def named(field: str, check: Callable[[T], object], value: T) -> None:
    """Run a check and add the name of the field to its error."""
    try:
        check(value)
    except DuelineError as error:
        if error.field is None or field not in error.field:
            error.field = field
        raise
