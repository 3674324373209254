"""Why a call on the link failed, beyond the errors of the call itself."""

from __future__ import annotations


class LinkLost(Exception):
    """The connection broke, or there is none. `written`: the call's bytes may have reached the store. `loading`: the
    store is loading its data. `refused_s`: for how long the address has rejected connections; None: it did not.
    `untrusted`: because of a certificate (StoreTls.refusal)."""

    def __init__(
        self,
        message: str,
        written: bool,
        loading: bool = False,
        refused_s: float | None = None,
        untrusted: bool = False,
    ) -> None:
        super().__init__(message)
        self.written = written
        self.loading = loading
        self.refused_s = refused_s
        self.untrusted = untrusted


class NotNow(Exception):
    """The store answered, did nothing, and may accept the call soon: it fails over, moves slots, or is loading."""

    written = False
    refused_s = None

    def __init__(self, message: str, loading: bool = False) -> None:
        super().__init__(message)
        self.loading = loading


class WrongKind(Exception):
    """The address names another kind of store than the one that answers."""
