"""The protocol of ouqiang/delay-queue: five paths, any verb, always HTTP 200."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spec import ConfigFile, DialectSpec
from .config_file import read
from .settings import OuqiangSettings

if TYPE_CHECKING:
    from ..contract import Dialect, DialectContext


def _build(settings: OuqiangSettings, context: DialectContext) -> Dialect:
    from .dialect import OuqiangDialect

    return OuqiangDialect(settings, context)


CONFIG_FILE = ConfigFile(
    "--ouqiang-config",
    "Configuration file of the ouqiang/delay-queue server that this one replaces.",
    "/etc/delay-queue.conf",
    read,
)
SPEC = DialectSpec("ouqiang", OuqiangSettings, _build, namespace_ids=True, config_file=CONFIG_FILE)
