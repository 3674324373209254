"""One private valkey for all machines of this folder."""

from __future__ import annotations

from tests.kit.fixtures import private_valkey

__all__ = ["private_valkey"]
