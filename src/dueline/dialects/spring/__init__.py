"""The protocol of the Spring redis delay queue, service mode: clients POST jobs, we call an application's instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spec import DialectSpec
from .settings import SpringSettings

if TYPE_CHECKING:
    from ..contract import Dialect, DialectContext


def _build(settings: SpringSettings, context: DialectContext) -> Dialect:
    from .dialect import SpringDialect

    return SpringDialect(settings, context)


SPEC = DialectSpec("spring", SpringSettings, _build, namespace_ids=True)
