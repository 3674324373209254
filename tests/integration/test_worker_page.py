"""The programs of docs/worker.md, run as a reader would: each by a worker of its own, with jobs that show it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dueline.testing.process import free_port

from ..faults.kit import short_folder

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = dict(PROGRAM.findall((ROOT / "docs" / "worker.md").read_text()))

DRIVER = """
import asyncio, importlib, json, sys

module = importlib.import_module(sys.argv[1])
jobs = json.loads(sys.argv[2])

async def main():
    worker = module.worker
    async with worker:
        for n, (topic, body, state, options) in enumerate(jobs):
            body = body.encode() if topic == "picture.shrink" else body
            await worker.ado(lambda queue: queue.send(topic, body, id=f"job-{n}", **options))
        for n, (topic, body, state, options) in enumerate(jobs):
            async with asyncio.timeout(60):
                while (job := await worker.ado(lambda queue: queue.get(topic, f"job-{n}"))).state != state:
                    await asyncio.sleep(0.02)
            print(json.dumps([topic, job.state, job.reason, job.attempts, (job.last_error or "").split("\\n")[-1]]))

if __name__ == "__main__":
    asyncio.run(main())
"""

CASES: dict[str, list[tuple[str, Any, str, dict[str, Any]]]] = {
    "shop": [("order.close", {"number": 7}, "done", {})],
    "payments": [
        ("payment.check", {"state": "paid"}, "done", {}),
        ("payment.check", {"state": "open"}, "scheduled", {}),
        ("payment.check", {"state": "bank closed"}, "scheduled", {}),
        ("payment.check", {"state": "cancelled"}, "dead", {}),
        ("payment.check", {"state": "broken"}, "dead", {"max_attempts": 1}),
    ],
    "fields": [("order.cancel", {"order_id": 7, "by": "ann"}, "done", {})],
    "nightly": [("clean-up", None, "done", {})],
    "orders": [
        ("order.placed", {"number": 1}, "done", {}),
        ("order.paid", {"number": 1}, "done", {"delay": "200ms"}),
        ("order.paid", {"number": 2}, "done", {}),  # its timer has run, or never was
    ],
    "pooled": [("report", "sales", "done", {})],
    "pictures": [("picture.shrink", "pixels", "done", {}), ("picture.upload", "a.png", "done", {})],
    "traced": [("mail", "hello", "dead", {"headers": {"Urgent": "no"}, "retry": ["10ms"]})],
    "tasks": [("task.close", {"order": 3}, "done", {})],
}

SHOWN: dict[str, list[Any]] = {
    "shop": ["order 7 is closed, attempt 1", ["order.close", "done", None, 1, ""]],
    "payments": [
        ["payment.check", "done", None, 1, ""],
        ["payment.check", "scheduled", None, 0, ""],
        ["payment.check", "scheduled", None, 1, "the bank is closed"],
        ["payment.check", "dead", "rejected", 1, "nothing to collect"],
        ["payment.check", "dead", "exhausted", 1, "ValueError: no such account"],
    ],
    "fields": ["order 7 is cancelled: unpaid", ["order.cancel", "done", None, 1, ""]],
    "nightly": ["cleaning up", ["clean-up", "done", None, 1, ""]],
    "orders": [["order.placed", "done", None, 1, ""], *[["order.paid", "done", None, 1, ""]] * 2],
    "pooled": ["sales by a connection", ["report", "done", None, 1, ""]],
    "pictures": [["picture.shrink", "done", None, 1, ""], ["picture.upload", "done", None, 1, ""]],
    "traced": [["mail", "dead", "rejected", 2, "not worth a second try"]],
    "tasks": ["close {'order': 3}", "tell {'order': 3}", ["task.close", "done", None, 1, ""]],
}


def test_every_program_of_the_page_is_run_here() -> None:
    assert set(PROGRAMS) == {*CASES, "billing"}


@pytest.mark.parametrize("name", CASES)
def test_a_program_of_the_page_does_what_the_page_says(name: str) -> None:
    with short_folder() as folder:
        (folder / f"{name}.py").write_text(PROGRAMS[name].replace(":9280", f":{free_port()}"))
        (folder / "driver.py").write_text(DRIVER)
        shown = subprocess.run(
            [sys.executable, "driver.py", name, msgspec.json.encode(CASES[name]).decode()],
            cwd=folder,
            env={**os.environ, "DUELINE_URL": "embedded:./data"},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert shown.returncode == 0, shown.stderr
        lines = [msgspec.json.decode(line) if line.startswith("[") else line for line in shown.stdout.splitlines()]
    assert lines == SHOWN[name]


def test_the_first_program_runs_as_it_stands_and_stops_at_sigterm() -> None:
    with short_folder() as folder:
        (folder / "shop.py").write_text(PROGRAMS["shop"].replace('delay="30m"', 'delay="10ms"'))
        with subprocess.Popen(
            [sys.executable, "shop.py"],
            cwd=folder,
            env={**os.environ, "DUELINE_URL": "embedded:./data"},
            stdout=subprocess.PIPE,
            text=True,
        ) as shop:
            assert shop.stdout is not None
            assert shop.stdout.readline() == "order 7 is closed, attempt 1\n"
            shop.terminate()
            assert shop.wait(60) == 0


def test_the_application_of_the_page_takes_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "billing.py").write_text(PROGRAMS["billing"])
    monkeypatch.syspath_prepend(str(tmp_path))
    import billing  # pyright: ignore[reportMissingImports]

    assert billing.service.take(b'{"taskId":"1","taskType":"collect","params":"invoice-7"}') == (200, b"accepted")
    assert billing.service.task_types == ("collect",)
