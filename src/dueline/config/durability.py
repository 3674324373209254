"""What a success means, by the settings of a store. Servers, direct queues and the command line ask only here."""

from __future__ import annotations

from ..store_address import Kind, parse_store_url
from .settings import Store


def durability_of(store: Store) -> str:
    """The durability level that is promised. Where another node may take over, a success must survive that."""
    if store.durability is not None:
        return store.durability
    if store.url is None:
        return "fsync"
    return "standard" if parse_store_url(store.url).kind is Kind.STANDALONE else "replicated"


def durability_refusal(store: Store) -> str | None:
    """Why these settings do not fit together. None: they do."""
    if store.url is None:
        if store.durability in (None, "fsync"):
            return None
        return f'store.durability: the embedded store is "fsync", not "{store.durability}"'
    if store.durability == "fsync":
        return (
            'store.durability: "fsync" is possible only with the embedded store; an external store is "standard", '
            'as durable as its own configuration makes it, or "replicated"'
        )
    if store.degraded == "accept" and durability_of(store) != "replicated":
        return 'store.degraded: "accept" is possible only with store.durability = "replicated"'
    return None
