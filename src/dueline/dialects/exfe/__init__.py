"""EXFE's queue service over HTTP: items pushed under one key are delivered together, in one callback, when due.

The Redis actions of the same service are a library, `dueline.exfe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spec import DialectSpec
from .settings import ExfeSettings

if TYPE_CHECKING:
    from ..contract import Dialect, DialectContext


def _build(settings: ExfeSettings, context: DialectContext) -> Dialect:
    from .dialect import ExfeDialect

    return ExfeDialect(settings, context)


SPEC = DialectSpec("exfe", ExfeSettings, _build)
