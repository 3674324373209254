"""The metrics that camellia documents, under its own names: its dashboard queries them without a prefix.

The original's JVM metrics show the nearest Python equivalent.
"""

from __future__ import annotations

from ...metrics.metric import Kind, Merge, Metric, MetricGroup

METRICS = MetricGroup("camellia", "A window is `dialects.camellia.monitor_window_ms` long.")

INFO = METRICS.gauge(
    "info",
    "Always 1. Its labels describe the server and its machine.",
    (
        *("camellia_version", "arch", "os_name", "os_version", "system_load_average"),
        *("vm_vendor", "vm_name", "vm_version", "jvm_info", "java_version"),
    ),
)
UPTIME = METRICS.gauge("uptime", "Milliseconds since the start.")
START_TIME = METRICS.gauge("start_time", "Start time in milliseconds since the Unix epoch.")
MEMORY_INFO = METRICS.gauge(
    "memory_info", "Bytes: resident memory of all processes; free memory and all memory of the machine.", ("type",)
)
CPU = METRICS.gauge("cpu", "Processors of the machine, and the used percentage of one processor.", ("type",))
GC = METRICS.gauge("gc", "Garbage collections.", ("name", "type"))
REQUEST = METRICS.gauge("request", "Calls and events of the last complete window.", ("topic", "type"))
PULL_MSG_TIME_GAP = METRICS.gauge(
    "pull_msg_time_gap", "Milliseconds from trigger time to pull, in the last complete window.", ("topic", "type")
)
READY_QUEUE_TIME_GAP = METRICS.gauge(
    "ready_queue_time_gap", "Milliseconds from trigger time to ready, in the last complete window.", ("topic", "type")
)
TOPIC_INFO = METRICS.gauge("topic_info", "Messages by topic and queue.", ("topic", "type"))

# The processes of a server exchange their windows as these two, which are never exported.
WINDOW_SUMS = Metric("camellia_internal_sums", Kind.GAUGE, "Counts of one process.", ("topic", "name"))
WINDOW_MAXIMA = Metric("camellia_internal_maxima", Kind.GAUGE, "Maxima of one process.", ("topic", "name"), Merge.MAX)
