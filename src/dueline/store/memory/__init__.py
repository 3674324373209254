"""The readable reference store. Tests compare the real one with it; it is never offered as a way to run the server."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
