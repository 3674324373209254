"""A process that holds an embedded store, for tests to kill. Says "ready <store pid> <url>" or "refused <why>"."""

from __future__ import annotations

import asyncio
import os
import sys

from dueline.store.valkey.embedded import EmbeddedError, EmbeddedStore, FolderInUse


async def hold(data: str) -> int:
    store = EmbeddedStore(data, orphan_wait_s=float(os.environ.get("ORPHAN_WAIT_S", "30")))
    try:
        await store.start()
    except (FolderInUse, EmbeddedError) as refusal:
        print("refused", refusal, flush=True)
        return 1
    print("ready", store.pid, store.url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await store.stop()
    print("stopped", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(hold(sys.argv[1])))
