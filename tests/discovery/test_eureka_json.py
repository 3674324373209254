"""What a registry tells is written by others, of any version and any mind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dueline.push.discovery import Instance
from dueline.push.discovery.eureka_json import Unreadable, instances_in, tasks_of

PLAIN = {
    "instanceId": "i-1",
    "hostName": "billing.example",
    "ipAddr": "10.0.0.7",
    "app": "BILLING",
    "vipAddress": "billing",
    "status": "UP",
    "port": {"$": 8080, "@enabled": "true"},
    "securePort": {"$": 8443, "@enabled": "false"},
    "metadata": {"delay-queue:task": "task1"},
}


def answer_with(*instances: Any) -> bytes:
    return json.dumps({"application": {"name": "BILLING", "instance": list(instances)}}).encode()


def urls(*instances: Any, prefer_ip: bool = False) -> list[str]:
    return [one.url for one in instances_in(answer_with(*instances), prefer_ip)]


def test_an_instance_is_its_scheme_host_and_port() -> None:
    assert instances_in(answer_with(PLAIN), False) == [
        Instance("http://billing.example:8080", ("task1",), "billing", "i-1", {"delay-queue:task": "task1"})
    ]


def test_the_secure_port_is_taken_when_it_is_enabled() -> None:
    assert urls({**PLAIN, "securePort": {"$": 8443, "@enabled": "true"}}) == ["https://billing.example:8443"]


def test_addresses_are_preferred_when_it_is_said() -> None:
    assert urls(PLAIN, prefer_ip=True) == ["http://10.0.0.7:8080"]
    assert urls({**PLAIN, "ipAddr": "fd00::7"}, prefer_ip=True) == ["http://[fd00::7]:8080"]


def test_old_spellings_are_read() -> None:
    """One instance as an object; numbers as texts; truth values as themselves."""
    one = {**PLAIN, "port": {"$": "8080", "@enabled": True}}
    raw = json.dumps({"applications": {"application": {"name": "BILLING", "instance": one}}}).encode()
    assert [found.url for found in instances_in(raw, False)] == ["http://billing.example:8080"]


@pytest.mark.parametrize(
    "change",
    [
        {"status": "DOWN"},
        {"status": None},
        {"port": {"$": 8080, "@enabled": "false"}},
        {"port": {"$": 0, "@enabled": "true"}},
        {"port": {"$": 65536, "@enabled": "true"}},
        {"port": {"$": "80/admin", "@enabled": "true"}},
        {"port": None},
        {"hostName": "user@billing.example", "ipAddr": None},
        {"hostName": "billing.example/path?", "ipAddr": ""},
        {"hostName": "billing.example\r\nHost: x", "ipAddr": 7},
        {"hostName": ":::", "ipAddr": "1:2/3"},
        {"hostName": {"$": "x"}, "ipAddr": None},
    ],
)
def test_an_instance_that_cannot_be_called_is_left_out(change: dict[str, Any]) -> None:
    assert urls({**PLAIN, **change}, PLAIN) == ["http://billing.example:8080"]


@pytest.mark.parametrize("metadata", [None, {}, [], "text", {"delay-queue:task": None}])
def test_no_metadata_says_nothing_about_tasks(metadata: Any) -> None:
    assert [one.tasks for one in instances_in(answer_with({**PLAIN, "metadata": metadata}), False)] == [None]


def test_tasks_are_split_as_the_original_client_joins_them() -> None:
    types = ("task1", " outer ", "a,b", "end,", "", "中,文")
    assert tasks_of(", ".join(types)) == types
    assert (tasks_of("a, a"), tasks_of(""), tasks_of(None)) == (("a",), (), None)


@pytest.mark.parametrize("raw", [b"", b"<html/>", b"[]", b"null", b"{}", b'{"error": 1}', b"\xff", b"[" * 100_000])
def test_what_no_registry_says_is_unreadable(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        instances_in(raw, False)


@pytest.mark.parametrize("applications", [{}, {"application": []}, {"application": None}, {"application": [None, 3]}])
def test_a_registry_without_instances_is_readable(applications: Any) -> None:
    assert instances_in(json.dumps({"applications": applications}).encode(), False) == []
