"""The whole native API on one page. OpenAPI and the router are made from this table.

`name` is the method of NativeHandlers that answers, the label in metrics and the operation id.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..http import Route
from . import answers as a
from . import requests as r
from .handlers import NativeHandlers


class Many(msgspec.Struct, frozen=True):
    """Answer of a many-call: results in request order, each one of `results` or {"id", "error"}."""

    results: tuple[Any, ...]


class Operation(msgspec.Struct, frozen=True):
    """One line: what is asked, with what, and what is answered. `answers` are alternatives."""

    method: str
    pattern: str
    name: str
    summary: str
    answers: tuple[Any, ...]
    request: Any = None
    query: Any = None
    success: tuple[int, ...] = (200,)
    errors: tuple[str, ...] = ()
    body_optional: bool = False
    parks: bool = False


T = "/v1/topics/{topic}"
J = T + "/jobs"
ENDED = ("not_found", "job_leased", "already_done")
LEASES = ("lease_lost", "not_found")

OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", J, "send", "Send one job (object) or many (array)", (a.Sent, Many((a.Sent,))),
              r.SendJob | list[r.SendJob], success=(201, 200), errors=("id_exists", "body_too_large", "store_full")),
    Operation("GET", J, "list_jobs", "List jobs, page by page", (a.JobPage,), query=r.ListJobs),
    Operation("GET", J + "/{id}", "get", "Read a job", (a.Job,), errors=("not_found",)),
    Operation("PATCH", J + "/{id}", "patch", "Reschedule or edit a job", (a.Job,), r.PatchJob,
              errors=(*ENDED, "version_mismatch", "body_too_large", "store_full")),
    Operation("DELETE", J + "/{id}", "cancel", "Cancel a job", (a.Cancelled,), errors=("not_found", "already_done")),
    Operation("POST", J + "/{id}/fire", "fire", "Make a job due now", (a.Fired,), r.Nothing, errors=ENDED,
              body_optional=True),
    Operation("POST", T + "/pull", "pull", "Take due jobs under a lease", (a.HeldJobs,), r.PullJobs,
              body_optional=True, parks=True),
    Operation("POST", "/v1/pull", "pull_topics", "Take due jobs of several topics", (a.HeldJobs,), r.PullTopics,
              parks=True),
    Operation("POST", T + "/ack", "ack", "Jobs are done", (Many((a.Acked,)),), r.AckJobs, errors=LEASES),
    Operation("POST", T + "/release", "release", "Give jobs back, now or after a delay",
              (Many((a.Released, a.Died)),), r.ReleaseJobs, errors=LEASES),
    Operation("POST", T + "/extend", "extend", "Keep leases longer", (Many((a.Extended,)),), r.ExtendJobs,
              errors=LEASES),
    Operation("POST", T + "/cancel", "cancel_jobs", "Cancel jobs by id or by filter",
              (Many((a.Cancelled,)), a.BulkCancelled), r.CancelJobs, errors=("not_found", "already_done")),
    Operation("GET", "/v1/topics", "list_topics", "List topics, page by page", (a.TopicPage,), query=r.ListTopics),
    Operation("GET", T, "get_topic", "A topic's figures and policy", (a.Topic,), errors=("not_found",)),
    Operation("PUT", T, "put_topic", "Set a topic's policy", (a.Topic,), r.PutTopic, success=(200, 201)),
    Operation("POST", T + "/pause", "pause", "Pause a topic: sends are taken, pulls give nothing", (a.Paused,),
              r.PauseTopic, body_optional=True),
    Operation("POST", T + "/resume", "resume", "Resume a topic", (a.Paused,), r.Nothing, body_optional=True),
    Operation("GET", T + "/dead", "list_dead", "List dead jobs", (a.DeadPage,), query=r.ListDead),
    Operation("POST", T + "/dead/revive", "revive", "Bring dead jobs back", (Many((a.Revived,)), a.BulkRevived),
              r.ReviveJobs, errors=("not_found", "store_full")),
    Operation("POST", T + "/dead/purge", "purge", "Forget dead jobs", (Many((a.Purged,)), a.BulkPurged), r.PurgeJobs,
              errors=("not_found",)),
    Operation("GET", "/v1/info", "info", "What this server is", (a.InfoView,)),
)  # fmt: skip


def routes(handlers: NativeHandlers) -> tuple[Route, ...]:
    """The table with its handlers."""
    return tuple(Route(o.method, o.pattern, getattr(handlers, o.name), o.name, o.parks) for o in OPERATIONS)
