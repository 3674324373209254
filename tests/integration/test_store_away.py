"""A store that is away: the error says for how long it was tried, and why it failed."""

from __future__ import annotations

import os
import re
import signal

import pytest

from dueline.engine.errors import StoreDown, UnknownOutcome
from dueline.store.valkey.store import ValkeyStore
from dueline.testing.process import free_port
from tests.kit.valkey import PrivateValkey


async def test_a_store_that_refuses_connections_is_reported_with_the_time_and_the_reason() -> None:
    with pytest.raises(StoreDown) as refused:
        await ValkeyStore(f"redis://127.0.0.1:{free_port()}", patience_s=0.3).start()
    assert re.match(r"the store did not answer for 0\.\d s: cannot reach the store: .*", refused.value.message)
    assert "Connect call failed" in refused.value.message or "refused" in refused.value.message


async def test_an_unknown_outcome_is_reported_with_the_time_and_the_reason() -> None:
    with PrivateValkey() as valkey:
        store = ValkeyStore(valkey.url, patience_s=0.3, reply_timeout_s=0.2)
        await store.start()
        assert valkey.pid is not None
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            with pytest.raises(UnknownOutcome) as refused:
                await store.directory.register([("default", "t")])
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
            await store.stop()
        words = r"the store did not answer for \d+\.\d s \(.+\): the call may have been done\. Retry with the same id\."
        assert re.fullmatch(words, refused.value.message), refused.value.message
