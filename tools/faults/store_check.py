"""fsck of a data folder whose server is not running, for tests that have just stopped or killed it."""

from __future__ import annotations

from pathlib import Path


async def findings_of(data: Path) -> list[str]:
    """Start the folder's store, read all of it, stop it, and return what is wrong. Call it from the main thread."""
    from dueline.store.valkey.embedded import EmbeddedStore

    store = EmbeddedStore(data)
    try:
        await store.start()
        return await findings_at(store.url)
    finally:
        await store.stop()


async def findings_at(url: str) -> list[str]:
    """What is wrong in a running store. Nothing may change it meanwhile."""
    from dueline.store.valkey.fsck import fsck

    report = await fsck(url)
    return [str(finding) for finding in report.findings]
