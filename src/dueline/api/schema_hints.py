"""What the OpenAPI document says beyond the types."""

from __future__ import annotations

from msgspec import Meta


def one_of(*texts: str) -> Meta:
    """Documents the values of a text. A newer server may send others."""
    return Meta(extra_json_schema={"enum": list(texts)})
