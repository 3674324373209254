"""What is checked and logged about the settings before a server loads its parts. It imports little: the embedded store
is started right after it, and the parts are loaded while the store starts."""

from __future__ import annotations

from ..config.settings import Settings
from ..engine.errors import InvalidField
from ..event_log import EventLog
from ..push.egress import Egress


class StartRefused(Exception):
    """The server cannot run with this store. Exit code 1."""


def push_refusal(settings: Settings) -> str | None:
    """Why these settings cannot be used, with the name of the key; None if they can."""
    try:
        egress_of(settings)
    except InvalidField as error:
        own = (error.field or "").startswith("namespaces.")
        return f"{'' if own else 'push.'}{error.field}: {error.message}"
    return None


def egress_of(settings: Settings) -> Egress:
    push = settings.push
    narrowed = {name: row.push_allow for name, row in settings.namespaces.items() if row.push_allow is not None}
    return Egress(push.allow, push.ports, push.deny_names, narrowed)


def log_callers(settings: Settings) -> None:
    """Log at the start who may call which dialect, unless everyone may call all of them."""
    log = EventLog("dueline.server")
    callers = settings.callers()
    if settings.server.auth == "none" and "network" not in callers.values():
        return
    log.info("who may call the dialects", **callers)
    if settings.server.auth == "none":
        return
    sections = settings.dialects.by_name()
    off = [name for name, who in callers.items() if who == "off" and sections[name].enabled]
    if off:
        log.info(
            f'these dialects are off, because server.auth is "tokens" and they have no auth setting: {", ".join(off)}. '
            f'To serve {off[0]}: [dialects.{off[0]}] auth = "header" (or "path", "network", "none")'
        )
    everyone = [name for name, who in callers.items() if who == "none"]
    if everyone:
        log.warning(
            f'everyone who can reach the server may use {", ".join(everyone)} without a token (auth = "none"): all '
            "rights except admin, in the namespace of the dialect"
        )
