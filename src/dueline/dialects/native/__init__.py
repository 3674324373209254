"""The native API: JSON over HTTP, with everything that Dueline can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..settings import DialectSettings
from ..spec import DialectSpec

if TYPE_CHECKING:
    from ..contract import Dialect, DialectContext


def _build(settings: DialectSettings, context: DialectContext) -> Dialect:
    from .dialect import NativeDialect

    return NativeDialect(settings, context)


SPEC = DialectSpec("native", DialectSettings, _build)
