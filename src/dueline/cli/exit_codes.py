"""The exit codes of all commands. `serve` needs nothing else of what the commands on the API share (`session`)."""

from __future__ import annotations

FAILURE, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4  # 0: ok
