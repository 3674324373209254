"""The client's methods, of which its reference is made (tests/docs/test_references.py)."""

from __future__ import annotations

from dueline.client.api import Api
from dueline.client.method import method, pages


def test_the_methods_are_those_that_were_meant_to_be_and_each_says_what_it_does() -> None:
    names = {name for name in dir(Api) if not name.startswith("_")}
    assert names == {
        *("send", "send_many", "pull", "get", "history", "patch", "reschedule", "fire", "list_jobs"),
        *("ack", "ack_many", "ack_and_pull", "release", "release_many", "extend", "extend_many"),
        *("cancel", "cancel_many", "cancel_matching", "cancel_groups"),
        *("dead", "revive", "revive_many", "revive_matching", "purge", "purge_many", "purge_matching"),
        *("topics", "topic", "set_topic", "delete_topic", "pause", "resume", "namespaces"),
        *("push", "set_push", "remove_push", "pause_push", "resume_push", "attempts"),
        *("put_schedule", "schedules", "schedule", "delete_schedule", "next_occurrences"),
        "preview_schedule",
        *("run_schedule", "pause_schedule", "resume_schedule"),
        *("create_token", "tokens", "token", "rotate_token", "revoke_token"),
        *("forecast", "charts", "groups"),
        *("info", "ready", "events", "workers", "audit"),
    }
    found = {name: next(vars(kind)[name] for kind in Api.__mro__ if name in vars(kind)) for name in names}
    assert [name for name, value in found.items() if not (isinstance(value, method | pages) and value.__doc__)] == []
