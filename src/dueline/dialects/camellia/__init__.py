"""The protocol of camellia-delay-queue: forms in, JSON out, for its Java SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spec import DialectSpec
from .settings import CamelliaSettings

if TYPE_CHECKING:
    from ..contract import Dialect, DialectContext


def _build(settings: CamelliaSettings, context: DialectContext) -> Dialect:
    from .dialect import CamelliaDialect

    return CamelliaDialect(settings, context)


SPEC = DialectSpec("camellia", CamelliaSettings, _build)
