"""The page's program is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dueline.exfe import ExfeQueue

from .kit import ExfeKit

PAGE = Path(__file__).parents[2] / "docs" / "dialects" / "exfe-redis.md"


def test_the_program_of_the_page_delivers_both_tasks_and_then_waits(kit: ExfeKit) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, Any] = {"url": kit.url}
    exec(program.replace('prefix="mail"', f'prefix="{kit.prefix}"'), scope)
    queue: ExfeQueue = scope["queue"]
    handled: list[Any] = []

    def fail(tasks: list[bytes], data: dict[bytes, bytes]) -> None:
        handled.append("failed")
        raise RuntimeError

    scope["work_once"](fail)
    scope["work_once"](lambda tasks, data: handled.append((tasks, data)))
    queue.push("new", "{}", ontime=1)
    scope["work_once"](lambda tasks, data: handled.append((tasks, data)))
    assert handled == ["failed", ([b'{"to": 789}', b'{"to": 790}'], {b"lang": b"en"}), ([b"{}"], {})]
    assert kit.state() == {}
    queue.close()
