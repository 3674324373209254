"""The error of a configuration."""

from __future__ import annotations


class ConfigError(ValueError):
    """The configuration cannot be used. Exit code 2."""
