"""The outgoing client that is loaded when there is somebody to call."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dueline.push.call import STOPPING, Call, CallFailed
from dueline.push.egress import Egress
from dueline.push.lazy_outgoing import LazyOutgoing

from .egress_kit import saying, serving

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


async def test_the_first_call_waits_until_the_client_is_there() -> None:
    async with serving(saying(OK)) as port:
        later = LazyOutgoing(Egress(["127.0.0.0/8"]), user_agent="x")
        later.soon()
        answer = await later.call(Call("POST", f"http://127.0.0.1:{port}/"))
        await later.stop()
        assert answer.status == 204


async def test_it_can_be_stopped_at_any_time_and_calls_nobody_then() -> None:
    never = LazyOutgoing(Egress())
    await never.stop()
    later = LazyOutgoing(Egress(["127.0.0.0/8"]))
    later.soon()
    await later.stop()
    await later.stop()
    with pytest.raises(CallFailed) as failed:
        await later.call(Call("POST", "http://127.0.0.1:1/"))
    assert failed.value.message == STOPPING


def test_a_server_loads_no_http_client_before_it_serves() -> None:
    program = "import sys, dueline.server.serve, dueline.server.app; print('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
