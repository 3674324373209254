"""A valid request for every route of the server, for tests and tools that call all of them.

A route without a sample, or a sample without a route, fails tests/security/test_matrix.py.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any
from urllib.parse import urlencode

import msgspec


class Names(Enum):
    """What a request names, which decides what its token must be valid for."""

    TOPIC = "a topic"
    ALL = "a job's id that any topic may have, or all topics"
    NOTHING = "nothing that belongs to a topic"


class Sample(msgspec.Struct, frozen=True):
    """`{topic}` in the path and in the texts of the body stands for the topic. `body` is JSON, `form` a form."""

    method: str
    path: str
    names: Names = Names.TOPIC
    body: Any = None
    form: dict[str, str] | None = None

    def written(self, topic: str) -> tuple[str, str, bytes]:
        """Path, content type and body for a topic."""
        path = self.path.replace("{topic}", topic)
        if self.form is not None:
            form = urlencode({name: value.replace("{topic}", topic) for name, value in self.form.items()})
            return path, "application/x-www-form-urlencoded", form.encode()
        text = "" if self.body is None else json.dumps(self.body).replace("{topic}", topic)
        return path, "application/json", text.encode()


T, J, P = "/v1/topics/{topic}", "/v1/topics/{topic}/jobs", "/v1/topics/{topic}/push"
A = "/v1/tokens/5d41402abc4b"  # of nobody
S = "/v1/schedules"
C = "/camellia/delayQueue/"
LEASED = {"jobs": [{"id": "a", "lease": "AAAA"}]}
MSG = {"topic": "{topic}", "msgId": "a"}
SERVICE = "aHR0cDovL2V4YW1wbGUuY29tLw=="  # http://example.com/ in base64
JOB = {"topic": "{topic}", "id": "a", "delay": 3600, "ttr": 60, "body": "x"}

WORKER = {"host": "h", "pid": 1, "version": "0", "topics": ["{topic}"], "concurrency": 1, "started_at_ms": 1}

SAMPLES: dict[str, Sample] = {
    "healthz": Sample("GET", "/healthz", Names.NOTHING),
    "readyz": Sample("GET", "/readyz", Names.NOTHING),
    "metrics": Sample("GET", "/metrics", Names.ALL),
    "openapi": Sample("GET", "/openapi.json", Names.NOTHING),
    "docs": Sample("GET", "/docs", Names.NOTHING),
    "root": Sample("GET", "/", Names.NOTHING),
    "ui": Sample("GET", "/ui/", Names.NOTHING),
    "ui_moved": Sample("GET", "/ui", Names.NOTHING),
    "ui_settings": Sample("GET", "/ui/settings", Names.NOTHING),
    "ui_login": Sample("POST", "/ui/login", Names.NOTHING, body={}),  # the token is in the body; this has none
    "ui_logout": Sample("POST", "/ui/logout", Names.NOTHING),
    "send": Sample("POST", J, body={"id": "a", "body": 1, "delay": "1h", "on_conflict": "keep"}),
    "list_jobs": Sample("GET", J),
    "get": Sample("GET", J + "/a"),
    "history": Sample("GET", J + "/a/history"),
    "patch": Sample("PATCH", J + "/a", body={"delay": "2h"}),
    "cancel": Sample("DELETE", J + "/a"),
    "fire": Sample("POST", J + "/none/fire"),
    "cancel_jobs": Sample("POST", T + "/cancel", body={"ids": ["none"]}),
    "pull": Sample("POST", T + "/pull", body={}),
    "pull_topics": Sample("POST", "/v1/pull", body={"topics": ["{topic}"]}),
    "ack": Sample("POST", T + "/ack", body=LEASED),
    "release": Sample("POST", T + "/release", body=LEASED),
    "extend": Sample("POST", T + "/extend", body={"jobs": [{"id": "a", "lease": "AAAA", "lease_ms": 1000}]}),
    "list_topics": Sample("GET", "/v1/topics", Names.ALL),
    "get_topic": Sample("GET", T),
    "put_topic": Sample("PUT", T, body={"lease_ms": 60_000}),
    "delete_topic": Sample("DELETE", T),
    "pause": Sample("POST", T + "/pause", body={"until_ms": 1}),
    "resume": Sample("POST", T + "/resume"),
    "list_namespaces": Sample("GET", "/v1/namespaces", Names.NOTHING),
    "forecast": Sample("GET", "/v1/forecast?edges_ms=1,2", Names.ALL),
    "topic_forecast": Sample("GET", T + "/forecast?edges_ms=1,2"),
    "charts": Sample("GET", "/v1/charts?hours=1", Names.ALL),
    "list_groups": Sample("GET", T + "/groups"),
    "list_dead": Sample("GET", T + "/dead"),
    "revive": Sample("POST", T + "/dead/revive", body={"ids": ["none"]}),
    "purge": Sample("POST", T + "/dead/purge", body={"ids": ["none"]}),
    "get_push": Sample("GET", P),
    "put_push": Sample("PUT", P, body={"url": "http://example.com/hook", "paused": True}),
    "remove_push": Sample("DELETE", P),
    "list_attempts": Sample("GET", P + "/attempts"),
    "pause_push": Sample("POST", P + "/pause"),
    "resume_push": Sample("POST", P + "/resume"),
    "list_schedules": Sample("GET", S, Names.NOTHING),  # it shows what the token is valid for
    "put_schedule": Sample("PUT", S + "/a", body={"topic": "{topic}", "every": "1w", "job": {"body": 1}}),
    # The stored schedule names the topic, and there is none of this name.
    "get_schedule": Sample("GET", S + "/none", Names.NOTHING),
    "next_occurrences": Sample("GET", S + "/none/next", Names.NOTHING),
    "preview_schedule": Sample("POST", S + "/a/next", body={"topic": "{topic}", "every": "1w", "job": {"body": 1}}),
    "pause_schedule": Sample("POST", S + "/none/pause", Names.NOTHING),
    "resume_schedule": Sample("POST", S + "/none/resume", Names.NOTHING),
    "run_schedule": Sample("POST", S + "/none/run", Names.NOTHING),
    "delete_schedule": Sample("DELETE", S + "/none", Names.NOTHING),
    "create_token": Sample("POST", "/v1/tokens", Names.ALL, body={"name": "a", "rights": ["send"], "expires": "1h"}),
    "list_tokens": Sample("GET", "/v1/tokens", Names.ALL),
    "get_token": Sample("GET", A, Names.ALL),
    "rotate_token": Sample("POST", A + "/rotate", Names.ALL, body={"overlap": "1m"}),
    "revoke_token": Sample("DELETE", A, Names.ALL),
    "list_audit": Sample("GET", "/v1/audit", Names.ALL),
    "info": Sample("GET", "/v1/info", Names.NOTHING),
    "list_workers": Sample("GET", "/v1/workers", Names.NOTHING),  # it shows what the token is valid for
    "put_worker": Sample("PUT", "/v1/workers/a", body=WORKER),
    "stop_worker": Sample("DELETE", "/v1/workers/none", Names.NOTHING),  # the stored report names the topics
    "events": Sample("GET", "/v1/events?topic={topic}&wait_ms=0"),
    "camellia_send_msg": Sample("POST", C + "sendMsg", form={**MSG, "msg": "x", "delayMillis": "3600000"}),
    "camellia_pull_msg": Sample("POST", C + "pullMsg", form={"topic": "{topic}"}),
    "camellia_long_polling_msg": Sample(
        "POST", C + "longPollingMsg", form={"topic": "{topic}", "longPollingTimeoutMillis": "1"}
    ),
    "camellia_ack_msg": Sample("POST", C + "ackMsg", form=MSG),
    "camellia_delete_msg": Sample("POST", C + "deleteMsg", form=MSG),
    "camellia_get_msg": Sample("POST", C + "getMsg", form=MSG),
    "camellia_get_monitor_data": Sample("GET", C + "getMonitorData", Names.ALL),
    "camellia_get_monitor_string": Sample("GET", C + "getMonitorString", Names.ALL),
    "camellia_get_topic_info": Sample("GET", C + "getTopicInfo?topic={topic}"),
    "camellia_get_topic_info_list": Sample("GET", C + "getTopicInfoList", Names.ALL),
    "camellia_health_status": Sample("GET", "/camellia/health/status", Names.NOTHING),
    "camellia_health_check": Sample("GET", "/camellia/health/check", Names.NOTHING),
    "camellia_health_online": Sample("GET", "/camellia/health/online", Names.NOTHING),
    "camellia_health_offline": Sample("GET", "/camellia/health/offline", Names.NOTHING),
    "ouqiang_push": Sample("POST", "/push", Names.ALL, body=JOB),
    "ouqiang_pop": Sample("POST", "/pop", body={"topic": "{topic}"}),
    "ouqiang_finish": Sample("POST", "/finish", Names.ALL, body={"id": "a"}),
    "ouqiang_delete": Sample("POST", "/delete", Names.ALL, body={"id": "a"}),
    "ouqiang_get": Sample("POST", "/get", Names.ALL, body={"id": "a"}),
    "youzan_command add": Sample("POST", "/", Names.ALL, body={"command": "add", **JOB}),
    "youzan_command pop": Sample("POST", "/", body={"command": "pop", "topic": "{topic}"}),
    "youzan_command finish": Sample("POST", "/", Names.ALL, body={"command": "finish", "id": "a"}),
    "youzan_command delete": Sample("POST", "/", Names.ALL, body={"command": "delete", "id": "a"}),
    "youzan_command_named add": Sample("POST", "/delay-queue", Names.ALL, body={"command": "add", **JOB}),
    "youzan_command_named pop": Sample("POST", "/delay-queue", body={"command": "pop", "topic": "{topic}"}),
    "youzan_command_named finish": Sample("POST", "/delay-queue", Names.ALL, body={"command": "finish", "id": "a"}),
    "youzan_command_named delete": Sample("POST", "/delay-queue", Names.ALL, body={"command": "delete", "id": "a"}),
    "spring_add": Sample(
        "POST",
        "/job/add",
        Names.ALL,
        body={"taskId": "a", "taskType": "{topic}", "delayTime": 4102444800000, "params": "{}"},
    ),
    "spring_types": Sample("GET", "/task/type/list", Names.ALL),
    "spring_service_info": Sample("GET", "/discovery/service_info", Names.ALL),
    "exfe_push": Sample("POST", f"/v3/queue/key/POST/{SERVICE}?ontime=4102444800", body={"to": "x"}),
    "exfe_drop": Sample("DELETE", f"/v3/queue/key/POST/{SERVICE}"),
}
