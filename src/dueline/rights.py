"""What a caller may be allowed to do. Every route declares the right that it needs; nothing checks it yet."""

from __future__ import annotations

from enum import StrEnum


class Right(StrEnum):
    NONE = "none"  # public: health, the API's description
    SEND = "send"
    PULL = "pull"  # take, ack, release and extend jobs
    READ = "read"
    MANAGE = "manage"  # change or remove jobs and topics
    PUSH = "push"  # make the server call a URL or a service
    ADMIN = "admin"  # change the server itself
