"""A handler in a child process that reports which trace it runs in."""

from __future__ import annotations

import os

from opentelemetry import trace

from dueline.worker import Worker

worker = Worker(os.environ.get("APP_URL", "http://127.0.0.1:1"), processes=1)


@worker.handles("traced.child", mode="process", max_attempts=1)
def report(n: int) -> None:
    here = trace.get_current_span().get_span_context()
    worker.do(lambda queue: queue.send("reports", f"{here.trace_id:032x}"), "ado")
