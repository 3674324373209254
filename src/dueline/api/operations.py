"""The whole native API as one table. The routes, OpenAPI and the client's requests are made from it. No I/O.

`name` is the handler that answers, the label in metrics, the operation id, and how a client names the call.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..rights import Right
from . import answers as a
from . import live_requests as lr
from . import overview_requests as vr
from . import push_requests as pr
from . import requests as r
from . import schedule_requests as sr
from . import token_requests as tr


class Shape(msgspec.Struct, frozen=True):
    """The fields of an answer that one operation uses, and the fixed text of its `result`. `name` is for OpenAPI."""

    kind: type[msgspec.Struct]
    name: str
    fields: tuple[str, ...]
    result: str | None = None


class Many(msgspec.Struct, frozen=True):
    """Answer of a batch call: results in request order, each one of `results` or {"id", "error"}."""

    results: tuple[Any, ...]


class Operation(msgspec.Struct, frozen=True):
    """One line of the table. `answers` are alternatives. `request` is the type of the body, `query` that of the query
    string; an operation has at most one of them."""

    method: str
    pattern: str
    name: str
    right: Right
    group: str
    summary: str
    answers: tuple[Any, ...]
    request: Any = None
    query: Any = None
    success: tuple[int, ...] = (200,)
    errors: tuple[str, ...] = ()
    body_optional: bool = False
    parks: bool = False
    example: Any = None
    audited: bool = False  # each call is written to the audit log
    media: tuple[str, ...] = ("application/json",)  # of its answers


ACKED = Shape(a.Outcome, "Acked", ("id", "result"), "acked")
RELEASED = Shape(a.Outcome, "Released", ("id", "result", "due_at_ms"), "released")
DIED = Shape(a.Outcome, "Died", ("id", "result", "reason"), "dead")
EXTENDED = Shape(a.Outcome, "Extended", ("id", "result", "lease_until_ms"), "extended")
CANCELLED = Shape(a.Outcome, "Cancelled", ("id", "result"), "cancelled")
REVIVED = Shape(a.Outcome, "Revived", ("id", "result", "due_at_ms"), "revived")
PURGED = Shape(a.Outcome, "Purged", ("id", "result"), "purged")
FIRED = Shape(a.Outcome, "Fired", ("id", "result", "due_at_ms", "version"), "fired")
BULK_CANCELLED = Shape(a.Bulk, "BulkCancelled", ("matched", "cancelled", "dry_run", "complete"))
BULK_REVIVED = Shape(a.Bulk, "BulkRevived", ("matched", "revived", "dry_run", "complete"))
BULK_PURGED = Shape(a.Bulk, "BulkPurged", ("matched", "purged", "dry_run", "complete"))

T = "/v1/topics/{topic}"
J = T + "/jobs"
P = T + "/push"
S = "/v1/schedules"
A = "/v1/tokens"
SEND, TAKE, TOPICS, DEAD, PUSH, TOKENS = "Sending", "Consuming", "Topics", "Dead jobs", "Push", "Tokens"
SCHEDULES, EVENTS, OVERVIEW, WORKERS = "Schedules", "Events", "Overview", "Workers"
SCHEDULE_CHANGES = ("not_found", "version_mismatch", "conflict")
ENDED = ("not_found", "job_leased", "already_done")
LEASES = ("lease_lost", "not_found")
LEASE = {"id": "order-1042", "lease": "the token of the pull"}

OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", J, "send", Right.SEND, SEND, "Send one job (object) or many (array)", (a.Sent, Many((a.Sent,))),
              r.NewJob | r.NewJobs, success=(201, 200), errors=("id_exists", "body_too_large", "store_full"),
              example={"id": "order-1042", "body": {"order": 1042}, "delay": "30s"}),
    Operation("GET", J, "list_jobs", Right.READ, SEND, "List jobs, page by page", (a.JobPage,), query=r.ListJobs),
    Operation("GET", J + "/{id}", "get", Right.READ, SEND, "Read a job", (a.Job,), errors=("not_found",)),
    Operation("GET", J + "/{id}/history", "history", Right.READ, SEND, "What happened to a job", (a.History,),
              errors=("not_found",)),
    Operation("PATCH", J + "/{id}", "patch", Right.MANAGE, SEND, "Reschedule or edit a job", (a.Job,), r.PatchJob,
              errors=(*ENDED, "version_mismatch", "body_too_large", "store_full"), example={"delay": "5m"}),
    Operation("DELETE", J + "/{id}", "cancel", Right.MANAGE, SEND, "Cancel a job", (CANCELLED,),
              errors=("not_found", "already_done"), audited=True),
    Operation("POST", J + "/{id}/fire", "fire", Right.MANAGE, SEND, "Make a job due now", (FIRED,), r.Nothing,
              errors=ENDED,
              body_optional=True, example={}),
    Operation("POST", T + "/cancel", "cancel_jobs", Right.MANAGE, SEND, "Cancel jobs by id or by filter",
              (Many((CANCELLED,)), BULK_CANCELLED), r.CancelJobs, errors=("not_found", "already_done"),
              example={"filter": {"tag": "batch-7"}, "dry_run": True}, audited=True),
    Operation("POST", T + "/pull", "pull", Right.PULL, TAKE, "Take due jobs under a lease", (a.LeasedJobs,), r.PullJobs,
              body_optional=True, parks=True, example={"max": 10, "lease_ms": 30000, "wait_ms": 5000}),
    Operation("POST", "/v1/pull", "pull_topics", Right.PULL, TAKE,
              "Take due jobs of several topics, in order of priority",
              (a.LeasedJobs,), r.PullTopics, parks=True, example={"topics": ["urgent", "normal"], "max": 10}),
    Operation("POST", T + "/ack", "ack", Right.PULL, TAKE, "Ack jobs", (Many((ACKED,)),), r.AckJobs, errors=LEASES,
              example={"jobs": [LEASE]}),
    Operation("POST", T + "/release", "release", Right.PULL, TAKE, "Give jobs back, now or after a delay",
              (Many((RELEASED, DIED)),), r.ReleaseJobs, errors=LEASES,
              example={"jobs": [{**LEASE, "delay_ms": 5000, "error": "the printer is out of paper"}]}),
    Operation("POST", T + "/extend", "extend", Right.PULL, TAKE, "Extend leases", (Many((EXTENDED,)),), r.ExtendJobs,
              errors=LEASES, example={"jobs": [{**LEASE, "lease_ms": 60000}]}),
    Operation("GET", "/v1/topics", "list_topics", Right.READ, TOPICS, "List topics, page by page", (a.TopicPage,),
              query=r.ListTopics),
    Operation("GET", T, "get_topic", Right.READ, TOPICS, "A topic's counts and policy", (a.Topic,),
              query=r.GetTopic, errors=("not_found",)),
    Operation("PUT", T, "put_topic", Right.MANAGE, TOPICS, "Set a topic's policy", (a.Topic,), r.PutTopic,
              success=(200, 201),
              errors=("version_mismatch", "expanding", "conflict"),
              example={"lease_ms": 60000, "max_attempts": 5, "retry": {"ladder": ["2m", "10m", "1h"]}}, audited=True),
    Operation("DELETE", T, "delete_topic", Right.MANAGE, TOPICS, "Delete a topic that holds no jobs", (a.TopicDeleted,),
              errors=("not_found", "topic_not_empty"), audited=True),
    Operation("POST", T + "/pause", "pause", Right.MANAGE, TOPICS,
              "Pause a topic: it accepts sends, but pulls get nothing",
              (a.Paused,), r.PauseTopic, body_optional=True, example={}, audited=True),
    Operation("POST", T + "/resume", "resume", Right.MANAGE, TOPICS, "Resume a topic", (a.Paused,), r.Nothing,
              body_optional=True,
              example={}, audited=True),
    Operation("GET", "/v1/namespaces", "list_namespaces", Right.READ, TOPICS, "List the namespaces that have topics",
              (a.NamespacePage,), query=r.ListTopics),
    Operation("GET", "/v1/forecast", "forecast", Right.READ, OVERVIEW, "Count the jobs by due time, in all topics",
              (a.Forecast,), query=vr.GetForecast),
    Operation("GET", T + "/forecast", "topic_forecast", Right.READ, OVERVIEW,
              "Count the jobs of a topic by due time", (a.Forecast,), query=vr.GetForecast, errors=("not_found",)),
    Operation("GET", "/v1/charts", "charts", Right.READ, OVERVIEW, "What happened in the last hours, by minute",
              (a.Charts,), query=vr.GetCharts),
    Operation("GET", T + "/groups", "list_groups", Right.READ, OVERVIEW, "List the merge groups that are filling up",
              (a.GroupPage,), query=vr.ListGroups),
    Operation("GET", T + "/dead", "list_dead", Right.READ, DEAD, "List dead jobs", (a.DeadPage,), query=r.ListDead),
    Operation("POST", T + "/dead/revive", "revive", Right.MANAGE, DEAD, "Revive dead jobs",
              (Many((REVIVED,)), BULK_REVIVED), r.ReviveJobs, errors=("not_found", "already_done", "store_full"),
              example={"ids": ["order-1042"]}, audited=True),
    Operation("POST", T + "/dead/purge", "purge", Right.MANAGE, DEAD, "Delete dead jobs permanently", (Many((PURGED,)),
              BULK_PURGED),
              r.PurgeJobs, errors=("not_found",), example={"filter": {}, "dry_run": True}, audited=True),
    Operation("GET", P, "get_push", Right.PUSH, PUSH, "A topic's push target and its state", (a.Push,),
              errors=("not_found",)),
    Operation("PUT", P, "put_push", Right.PUSH, PUSH, "Set a topic's push target", (a.Push,),
              pr.PutPush,
              success=(200, 201), errors=("egress_refused",),
              example={"url": "https://example.com/hook", "retry": {"ladder": ["2m", "10m", "1h"]}}, audited=True),
    Operation("DELETE", P, "remove_push", Right.PUSH, PUSH, "Remove a push target; the jobs stay", (a.PushRemoved,),
              errors=("not_found",), audited=True),
    Operation("GET", P + "/attempts", "list_attempts", Right.PUSH, PUSH, "The calls that were made, newest first",
              (a.AttemptPage,), query=pr.ListAttempts, errors=("not_found",)),
    Operation("POST", P + "/pause", "pause_push", Right.PUSH, PUSH, "Stop making calls", (a.Paused,), r.Nothing,
              errors=("not_found",), body_optional=True, example={}, audited=True),
    Operation("POST", P + "/resume", "resume_push", Right.PUSH, PUSH, "Make calls again", (a.Paused,), r.Nothing,
              errors=("not_found",), body_optional=True, example={}, audited=True),
    Operation("GET", S, "list_schedules", Right.READ, SCHEDULES, "List schedules, page by page", (a.SchedulePage,),
              query=sr.ListSchedules),
    Operation("GET", S + "/{name}", "get_schedule", Right.READ, SCHEDULES, "Read a schedule", (a.Schedule,),
              errors=("not_found",)),
    Operation("PUT", S + "/{name}", "put_schedule", Right.MANAGE, SCHEDULES, "Make or replace a schedule",
              (a.Schedule,), sr.PutSchedule, success=(200, 201),
              errors=("version_mismatch", "conflict", "body_too_large", "store_full"),
              example={"topic": "reports", "cron": "0 9 * * MON-FRI", "tz": "Europe/Madrid",
                       "job": {"body": {"report": "daily"}}}, audited=True),
    Operation("DELETE", S + "/{name}", "delete_schedule", Right.MANAGE, SCHEDULES,
              "Delete a schedule; jobs that it sent stay", (a.ScheduleDeleted,), errors=SCHEDULE_CHANGES,
              audited=True),
    Operation("GET", S + "/{name}/next", "next_occurrences", Right.READ, SCHEDULES, "The next occurrences",
              (a.NextOccurrences,), query=sr.ListOccurrences, errors=("not_found",)),
    Operation("POST", S + "/{name}/next", "preview_schedule", Right.READ, SCHEDULES,
              "The next ten occurrences that a schedule would have", (a.NextOccurrences,), sr.PutSchedule,
              errors=("body_too_large",), example={"topic": "reports", "every": "1h", "job": {"body": 1}}),
    Operation("POST", S + "/{name}/run", "run_schedule", Right.MANAGE, SCHEDULES,
              "Send a job now, besides the occurrences", (a.Sent,), r.Nothing, success=(201, 200),
              errors=(*SCHEDULE_CHANGES, "store_full"), body_optional=True, example={}, audited=True),
    Operation("POST", S + "/{name}/pause", "pause_schedule", Right.MANAGE, SCHEDULES,
              "Pause a schedule; jobs that it sent stay", (a.SchedulePaused,), r.Nothing,
              errors=SCHEDULE_CHANGES,
              body_optional=True, example={}, audited=True),
    Operation("POST", S + "/{name}/resume", "resume_schedule", Right.MANAGE, SCHEDULES, "Resume a schedule",
              (a.Schedule,), r.Nothing, errors=SCHEDULE_CHANGES, body_optional=True, example={}, audited=True),
    Operation("POST", A, "create_token", Right.ADMIN, TOKENS, "Make a token; its text is shown only here",
              (a.SecretToken,), tr.CreateToken, success=(201,), errors=("too_many_tokens",),
              example={"name": "billing workers", "rights": ["send", "pull"], "topics": ["billing-*"],
                       "expires": "90d"}, audited=True),
    Operation("GET", A, "list_tokens", Right.ADMIN, TOKENS, "List tokens, page by page", (a.TokenPage,),
              query=tr.ListTokens),
    Operation("GET", A + "/{token}", "get_token", Right.ADMIN, TOKENS, "A token, without its secret", (a.Token,),
              errors=("not_found",)),
    Operation("POST", A + "/{token}/rotate", "rotate_token", Right.ADMIN, TOKENS,
              "Give a token a new secret; the old one stays valid for a while", (a.SecretToken,), tr.RotateToken,
              errors=("not_found", "already_done"), body_optional=True, example={"overlap": "1h"},
              audited=True),
    Operation("DELETE", A + "/{token}", "revoke_token", Right.ADMIN, TOKENS,
              "Revoke a token: no server accepts it after the answer", (a.Token,), errors=("not_found",),
              audited=True),
    Operation("GET", "/v1/workers", "list_workers", Right.READ, WORKERS, "The workers of the last minute",
              (a.Workers,)),
    Operation("PUT", "/v1/workers/{name}", "put_worker", Right.PULL, WORKERS, "A worker reports itself, every 10 s",
              (a.WorkerSeen,), lr.PutWorker, errors=("rate_limited",),
              example={"host": "shop-1", "pid": 4711, "version": "0.1.0", "topics": ["orders"], "concurrency": 10,
                       "started_at_ms": 1767225600000}),
    Operation("DELETE", "/v1/workers/{name}", "stop_worker", Right.PULL, WORKERS, "A worker has stopped",
              (a.WorkerStopped,), errors=("not_found",)),
    Operation("GET", "/v1/events", "events", Right.READ, EVENTS, "What happens, as server-sent events or page by page",
              (a.EventPage,), query=lr.ListEvents, parks=True, media=("application/json", "text/event-stream")),
    Operation("GET", "/v1/audit", "list_audit", Right.ADMIN, "Server", "Who changed what, newest first", (a.AuditPage,),
              query=r.ListAudit),
    Operation("GET", "/v1/info", "info", Right.READ, "Server", "The server's version, limits and durability",
              (a.Info,)),
)  # fmt: skip

READY = Operation(
    "GET", "/readyz", "ready", Right.NONE, "Server", "Whether sends and pulls are accepted", (a.Readiness,)
)
BY_NAME = {operation.name: operation for operation in (*OPERATIONS, READY)}
