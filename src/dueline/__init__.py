"""Dueline: a durable delay queue. `import dueline` needs neither the server's nor the store's dependencies."""

from ._version import __version__

__all__ = ["__version__"]
