"""The reference is made from the code."""

from __future__ import annotations

from pathlib import Path

from dueline.client.api import Api
from dueline.client.docs import page
from dueline.client.method import method, pages

PAGE = Path(__file__).parents[3] / "docs" / "python-reference.md"


def test_the_reference_is_made_from_the_code() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_the_methods_are_those_that_were_meant_to_be_and_each_says_what_it_does() -> None:
    names = {name for name in dir(Api) if not name.startswith("_")}
    assert names == {
        *("send", "send_many", "pull", "get", "patch", "reschedule", "fire", "list_jobs"),
        *("ack", "ack_many", "release", "release_many", "extend", "extend_many"),
        *("cancel", "cancel_many", "cancel_matching", "cancel_groups"),
        *("dead", "revive", "revive_many", "revive_matching", "purge", "purge_many", "purge_matching"),
        *("topics", "topic", "set_topic", "pause", "resume"),
        *("push", "set_push", "remove_push", "pause_push", "resume_push", "attempts"),
        *("info", "ready"),
    }
    found = {name: next(vars(kind)[name] for kind in Api.__mro__ if name in vars(kind)) for name in names}
    assert [name for name, value in found.items() if not (isinstance(value, method | pages) and value.__doc__)] == []
