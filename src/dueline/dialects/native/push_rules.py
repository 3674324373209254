"""How the checks of push targets (PushRules) are applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...engine.errors import DuelineError
from ...engine.push_checks import check_url
from ..contract import PushRules
from .wire import Caller

T = TypeVar("T")


def check_callable(rules: PushRules, url: str, caller: Caller, field: str) -> None:
    """Check that this is a URL (400) and that the server may call it for this caller, as far as is known before the
    call (403)."""
    check_url(url, field)
    named(field, lambda url: rules.url(url, caller.namespace, caller.grant), url)


def named(field: str, check: Callable[[T], object], value: T) -> None:
    """Run a check and add the name of the field to its error."""
    try:
        check(value)
    except DuelineError as error:
        if error.field is None or field not in error.field:
            error.field = field
        raise
