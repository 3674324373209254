"""What a transport knows about the client at its other end."""

from __future__ import annotations

import asyncio
import select


def has_left(transport: asyncio.WriteTransport) -> bool:
    """Whether the client has closed its side, seen without reading. Linux only: elsewhere it shows at the next read."""
    event = getattr(select, "POLLRDHUP", None)
    if event is None:
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), event)
    return bool(poll.poll(0))
