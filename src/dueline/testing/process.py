"""What every `dueline serve` of a test needs: the command, a free port, and the error if it does not start."""

from __future__ import annotations

import random
import re
import socket
import sys

DUELINE = (sys.executable, "-c", "from dueline.cli.main import main; main()")
READY = re.compile(r"ready on (https?://\S+)")
PORTS = (12_000, 32_000)


class NotStarted(Exception):
    """The server exited, or did not report ready in time. The message contains the end of its output."""


def free_port() -> int:
    """A free loopback port below the ephemeral range, because the system might give an ephemeral port to an outgoing
    connection before the server listens on it."""
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
