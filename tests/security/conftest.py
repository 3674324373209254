"""One private store for the tests of this folder; each server has keys of its own in it."""

from __future__ import annotations

from ..kit.fixtures import private_valkey as private_valkey
from .matrix_kit import server as server
