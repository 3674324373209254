"""The Youzan-style protocol: one JSON object per request, whose `command` names the operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spec import DialectSpec
from .settings import YouzanSettings

if TYPE_CHECKING:
    from ..contract import Dialect, DialectContext


def _build(settings: YouzanSettings, context: DialectContext) -> Dialect:
    from .dialect import YouzanDialect

    return YouzanDialect(settings, context)


SPEC = DialectSpec("youzan", YouzanSettings, _build, namespace_ids=True)
