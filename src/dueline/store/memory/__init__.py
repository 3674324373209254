"""The readable reference store. Tests compare the real store with it; a server never runs on it."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
