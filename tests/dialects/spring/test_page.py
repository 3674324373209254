"""docs/dialects/spring.md is executed: its table, its commands, against an application that takes the work."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path

from tests.integration.test_readme import type_all
from tests.kit.spring_app import SpringApp

from ..kit import serve
from .kit import Spring

PAGES = Path(__file__).parents[3] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


async def test_the_page_works_as_it_stands(spring: Spring) -> None:
    app = SpringApp("billing")
    await app.start()
    [table], commands = blocks("dialects/spring.md", "toml"), blocks("dialects/spring.md", "sh")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "dueline.toml"
        config.write_text(table.replace("127.0.0.1:9024", f"127.0.0.1:{app.port}"))
        served = await serve(Path(folder) / "data", args=["--config", str(config)])
        url = f"http://127.0.0.1:{served.server.port}"
        typed = Path(folder) / "typed"
        typed.mkdir()
        [output] = await asyncio.to_thread(type_all, commands, url, typed, True)
        groups, _, services = output.strip().partition("]")
        assert groups + "]" == '["billing-task1"]'
        assert [one["TaskType"] for one in json.loads(services)["billing"]] == ["task1, task2"]
        [work] = await app.arrived()
        assert work.job == {
            "taskId": "1",
            "taskType": "task1",
            "delayTime": 1628146026000,
            "params": '{"order":1}',
            "appName": "billing",
        }
        await served.stop()
    await app.stop()


async def test_the_tables_of_the_page_on_discovery_are_settings(spring: Spring) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "dueline.toml"
        config.write_text("".join(blocks("discovery.md", "toml")))
        served = await serve(Path(folder) / "data", args=["--config", str(config)])
        await served.stop()
