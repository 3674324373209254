"""Every metric of Dueline. docs/metrics.md is made from this table.

A dialect that shows metrics of its own declares them in its package, as `METRICS`.
"""

from __future__ import annotations

from .metric import Merge, MetricGroup

EMBEDDED = "with an embedded store"
TLS = "with TLS"

_TOPIC = ("namespace", "topic")

_jobs = MetricGroup(
    "Jobs", "The first five are read from the store, at most every 5 seconds, for the first 200 topics by name."
)

JOBS = _jobs.gauge(
    "dueline_jobs", "Jobs in the store, by state: scheduled, ready, leased, dead.", (*_TOPIC, "state"), Merge.MAX
)
OLDEST_READY_AGE = _jobs.gauge(
    "dueline_oldest_ready_age_seconds", "How long the oldest ready job has been due.", _TOPIC, Merge.MAX
)
NEXT_DUE = _jobs.gauge("dueline_next_due_seconds", "Time until the next job is due.", _TOPIC, Merge.MAX)
SCHEDULED_BY_DELAY = _jobs.gauge(
    "dueline_scheduled_by_delay",
    "Scheduled jobs by the time until they are due: up to 1m, 10m, 1h, 1d, 7d, or later.",
    (*_TOPIC, "band"),
    Merge.MAX,
)
HISTORY_DROPPED = _jobs.counter(
    "dueline_history_dropped_total",
    "History entries that were not kept, because of limits.max_history_bytes.",
    _TOPIC,
    Merge.MAX,
)
JOBS_SENT = _jobs.counter(
    "dueline_jobs_sent_total", "Sends, by result: created, kept, replaced, appended, refused.", (*_TOPIC, "result")
)
JOBS_PULLED = _jobs.counter("dueline_jobs_pulled_total", "Deliveries.", _TOPIC)
DELIVERY_LATENESS = _jobs.histogram(
    "dueline_delivery_lateness_seconds",
    "Time from due to delivered, by the store's clock.",
    _TOPIC,
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
)
JOB_ATTEMPTS = _jobs.histogram(
    "dueline_job_attempts", "Which attempt a delivery was.", ("namespace",), (1, 2, 3, 5, 10, 20, 50)
)
JOBS_ACKED = _jobs.counter("dueline_jobs_acked_total", "Jobs finished by an ack.", _TOPIC)
JOBS_RELEASED = _jobs.counter("dueline_jobs_released_total", "Leased jobs that consumers gave back.", _TOPIC)
JOBS_EXTENDED = _jobs.counter("dueline_jobs_extended_total", "Leases extended.", _TOPIC)
LEASES_LOST = _jobs.counter(
    "dueline_leases_lost_total", "Leases that expired without an ack, counted at the next delivery.", _TOPIC
)
JOBS_DEAD = _jobs.counter(
    "dueline_jobs_dead_total", "Jobs that died, by reason: exhausted, expired, rejected, corrupt.", (*_TOPIC, "reason")
)
JOBS_DEAD_TRIMMED = _jobs.counter(
    "dueline_jobs_dead_trimmed_total", "Dead jobs removed because their retention was over.", _TOPIC
)
JOBS_CANCELLED = _jobs.counter("dueline_jobs_cancelled_total", "Jobs cancelled.", _TOPIC)
JOBS_REVIVED = _jobs.counter("dueline_jobs_revived_total", "Dead jobs revived.", _TOPIC)
JOBS_PURGED = _jobs.counter("dueline_jobs_purged_total", "Ended jobs removed by a call.", _TOPIC)
LONGPOLL_WAITERS = _jobs.gauge("dueline_longpoll_waiters", "Pulls that are waiting for a job.")

_schedules = MetricGroup("Schedules")

SCHEDULE_OCCURRENCES = _schedules.counter(
    "dueline_schedule_occurrences_total",
    "Occurrences of schedules, by what became of them: fired (a job was sent), missed (by the misfire policy), skipped "
    "(the last job was still alive).",
    ("result",),
)
SCHEDULE_LATENESS = _schedules.histogram(
    "dueline_schedule_lateness_seconds",
    "How much later than its due time the job of an occurrence was sent. 0: it was sent ahead, as planned.",
    (),
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
)
SCHEDULE_FAILURES = _schedules.counter(
    "dueline_schedule_failures_total", "Sends of occurrences that failed and are tried again."
)

_push = MetricGroup("Push")

PUSH_REQUESTS = _push.counter(
    "dueline_push_requests_total",
    "Calls to push targets, by the class of the answer (such as 2xx) or by the reason why there was "
    "none: refused, resolve, connect, timeout, protocol, none.",
    (*_TOPIC, "code_class"),
)
PUSH_DURATION = _push.histogram(
    "dueline_push_duration_seconds",
    "Time from the call of a push target to its answer, or until giving up.",
    _TOPIC,
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
PUSH_INFLIGHT = _push.gauge("dueline_push_inflight", "Jobs that are being pushed now.", _TOPIC)
PUSH_DENIED = _push.counter(
    "dueline_push_denied_total",
    "URLs that the egress rules refused, by when they were refused: send, connect.",
    ("reason",),
)
PUSH_TARGET_PAUSED = _push.gauge("dueline_push_target_paused", "1 while a push target is paused.", _TOPIC, Merge.MAX)

_server = MetricGroup("Server")

BUILD_INFO = _server.gauge(
    "dueline_build_info",
    "Always 1. Its labels are the version, the store and the durability level.",
    ("version", "python", "store", "durability"),
    Merge.MAX,
)
READY = _server.gauge("dueline_ready", "1 while sends and pulls are accepted, else 0.", merge=Merge.MIN)
HTTP_CONNECTIONS = _server.gauge("dueline_http_connections", "Open client connections.")
HTTP_CONNECTIONS_REFUSED = _server.counter(
    "dueline_http_connections_refused_total", "Connections closed because their address is not in a dialect's networks."
)
HTTP_REQUESTS = _server.counter("dueline_http_requests_total", "Answered HTTP requests.", ("route", "method", "code"))
HTTP_REQUEST_DURATION = _server.histogram(
    "dueline_http_request_duration_seconds",
    "Time from a request to its answer.",
    ("route",),
    (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
AUDIT_LOST = _server.counter("dueline_audit_lost_total", "Entries of the audit log that could not be written.")
AUDIT_MERGED = _server.counter(
    "dueline_audit_merged_total",
    "Refused calls without an entry of their own in the audit log: the same action was refused to the same token less "
    "than a minute before.",
)
LIMIT_REFUSED = _server.counter(
    "dueline_limit_refused_total",
    "Refusals, by the limit of a client address, namespace or token that caused them. The namespace is empty for "
    "addresses; at most 200 have series of their own.",
    ("limit", "namespace"),
)
LIMIT_USE = _server.gauge(
    "dueline_limit_use",
    "How much of each limit is in use, in the process that uses the most. For addresses: by the address that "
    "uses the most.",
    ("limit", "namespace"),
    Merge.MAX,
)
TLS_CERTIFICATE_EXPIRY = _server.gauge(
    "dueline_tls_certificate_expiry_timestamp_seconds",
    "When the certificate in use expires, since the Unix epoch.",
    merge=Merge.MIN,
    when=TLS,
)
TLS_RELOAD_FAILURES = _server.counter(
    "dueline_tls_reload_failures_total", "New certificates that could not be used.", merge=Merge.MAX, when=TLS
)

_store = MetricGroup("Store")

STORE_UP = _store.gauge("dueline_store_up", "1 while the store answers, else 0.", merge=Merge.MIN)
STORE_CALL_DURATION = _store.histogram(
    "dueline_store_call_duration_seconds",
    "Time of one script call, measured by the server.",
    ("script",),
    (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
STORE_RECONNECTS = _store.counter("dueline_store_reconnects_total", "Lost connections to the store.")
STORE_ERRORS = _store.counter(
    "dueline_store_errors_total",
    "Calls of the store that failed for good, by kind: store_down, loading, store_full, unknown_outcome.",
    ("kind",),
)
STORE_MEMORY = _store.gauge(
    "dueline_store_memory_bytes", "Memory that all primaries of the store use.", merge=Merge.MAX
)
STORE_MAXMEMORY = _store.gauge("dueline_store_maxmemory_bytes", "The store's memory limit; 0: none.", merge=Merge.MAX)
STORE_GUARD = _store.gauge(
    "dueline_store_guard",
    "1 while a [guard](guards.md) holds for a shard, else 0. A shard is the address of a primary, or `embedded`.",
    ("guard", "shard"),
    Merge.MAX,
)
STORE_REPLICAS = _store.gauge(
    "dueline_store_replicas", "Connected replicas of the primary that has the fewest.", merge=Merge.MIN
)
STORE_UNREPLICATED = _store.counter(
    "dueline_store_unreplicated_total",
    'Changes that were answered although no replica had them (store.degraded = "accept").',
)
STORE_REPLACED = _store.gauge(
    "dueline_store_replaced",
    "Partitions that refuse sends because their data was lost; the lost directory of a store counts as one.",
    merge=Merge.MAX,
)
STORE_AOF_OK = _store.gauge(
    "dueline_store_aof_ok", "1 while the store writes its append-only file without errors.", merge=Merge.MIN
)
STORE_RESTARTS = _store.counter(
    "dueline_store_restarts_total", "Restarts of the embedded store.", merge=Merge.MAX, when=EMBEDDED
)
STORE_LOST_BYTES = _store.counter(
    "dueline_store_lost_bytes_total",
    "Bytes of the embedded store's data whose loss an operator accepted.",
    merge=Merge.MAX,
    when=EMBEDDED,
)
STORE_DISK_FREE = _store.gauge(
    "dueline_store_disk_free_bytes", "Free space on the embedded store's disk.", merge=Merge.MAX, when=EMBEDDED
)
CLOCK_OFFSET = _store.gauge(
    "dueline_clock_offset_seconds", "The store's clock minus the server's clock.", merge=Merge.MAX
)
CLOCK_STEPS = _store.counter("dueline_clock_steps_total", "Jumps of the store's clock.", merge=Merge.MAX)

PROCESS = MetricGroup(
    "Process",
    "Metrics that begin with `process_` are shown on Linux only. The values come from the Prometheus library.",
)

PROCESS_CPU = PROCESS.counter("process_cpu_seconds_total", "CPU time, user and system.")
PROCESS_RESIDENT = PROCESS.gauge("process_resident_memory_bytes", "Resident memory.")
PROCESS.gauge("process_virtual_memory_bytes", "Virtual memory.")
PROCESS.gauge("process_start_time_seconds", "Start time since the Unix epoch.", merge=Merge.MIN)
PROCESS.gauge("process_open_fds", "Open file descriptors.")
PROCESS.gauge("process_max_fds", "Limit of open file descriptors.")
GC_COLLECTIONS = PROCESS.counter("python_gc_collections_total", "Garbage collections.", ("generation",))
PROCESS.counter("python_gc_objects_collected_total", "Objects that a garbage collection freed.", ("generation",))
PROCESS.counter(
    "python_gc_objects_uncollectable_total", "Objects that a garbage collection could not free.", ("generation",)
)

WORKER = MetricGroup(
    "Worker", "A worker shows these on `/metrics` of its [health port](worker.md#health-and-metrics), and no others."
)

WORKER_JOBS = WORKER.counter(
    "dueline_worker_jobs_total",
    "Jobs whose handlers have ended, by outcome: done, failed, snoozed, discarded, lost (the lease), given_back.",
    ("topic", "outcome"),
)
WORKER_JOBS_IN_FLIGHT = WORKER.gauge("dueline_worker_jobs_in_flight", "Jobs whose handlers are running.", ("topic",))
WORKER_JOB_DURATION = WORKER.histogram(
    "dueline_worker_job_duration_seconds",
    "Time of one run of a job's handlers.",
    ("topic",),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0),
)

SERVER_GROUPS = (_jobs, _schedules, _push, _server, _store, PROCESS)
