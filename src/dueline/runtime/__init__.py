"""Opening a store, running an engine on it, and stopping both in order. The server, the mounted server, direct queues,
the command line and the testing kit all use this package.

    Place        where a store's process is: it may be started here (an embedded store), or it already runs
    StoreAccess  one store at a place: waits for it, checks it, connects
    Runtime      a store and its engine: start, stop in order
"""

from .access import NAMESPACE_IDS, Pause, StoreAccess
from .places import ExternalStore, FolderStore, Place, place_of
from .runtime import Runtime, Startable

__all__ = [
    "NAMESPACE_IDS",
    "ExternalStore",
    "FolderStore",
    "Pause",
    "Place",
    "Runtime",
    "Startable",
    "StoreAccess",
    "place_of",
]
