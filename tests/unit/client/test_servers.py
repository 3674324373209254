"""Which of several servers a client uses, and when a call is tried at the next one: pure decisions."""

from __future__ import annotations

import logging

import pytest

from dueline.client import Patience, calls, errors
from dueline.client.address import addresses_of, using
from dueline.client.errors import error_of
from dueline.client.patience import Tries
from dueline.client.servers import CONNECT_S, RETURN_S, Servers, servers_of

THREE = "http://a:1,http://b:2/base,https://c"
REFUSED = errors.Unreachable("unreachable", "m")
UNKNOWN = error_of("unknown_outcome", "m", id="x")


def servers(url: str = THREE) -> Servers:
    return Servers(addresses_of(url), order=list)


def in_use(these: Servers, now_s: float = 0.0) -> str:
    return these.current(now_s).url


def test_a_url_names_several_servers_and_each_has_its_own_address() -> None:
    found = addresses_of(" http://a:1 , http://b:2/base/,https://c,http://a:1", "ns", "secret")
    assert [(one.host, one.port, one.secure, one.base_path) for one in found] == [
        ("a", 1, False, ""),
        ("b", 2, False, "/base"),
        ("c", 443, True, ""),
    ]
    assert {(one.namespace, one.token) for one in found} == {("ns", "secret")}
    assert b"Host: b:2\r\n" in found[1].request(calls.info())
    assert (servers().url, using(THREE)) == (THREE, f"using the servers {THREE}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://a:1,", '"" is not the address of a server'),
        ("http://a:1,b:2", '"b:2" is not the address of a server'),
        ("http://a:1,redis://b:2", '"redis://b:2" is not the address of a server'),
        ("http://a:1,http://b:x", '"http://b:x" cannot be read'),
        ("http://a:1,http://u:hidden@b:2", "must not contain a user or password"),
    ],
)
def test_a_list_with_a_wrong_address_is_refused_as_a_whole(url: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        addresses_of(url)
    assert words in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_the_server_that_answers_is_kept_and_one_that_fails_is_left_for_the_next() -> None:
    first, second, third = addresses_of(THREE)
    these = Servers((first, second, third), order=tuple)
    assert these.current(0) is first
    for _ in range(2):  # two calls report the same failure
        these.failed(first, REFUSED, 0)
    assert these.current(0) is second
    these.failed(second, UNKNOWN, 0)
    these.failed(third, error_of("draining", "m"), 0)
    assert these.current(0) is first


@pytest.mark.parametrize("code", ["id_exists", "rate_limited", "store_full", "internal", "unauthorized"])
def test_a_refusal_is_no_reason_to_leave_a_server(code: str) -> None:
    these = servers()
    these.failed(these.current(0), error_of(code, "m"), 0)
    assert in_use(these) == "http://a:1"


def test_a_client_goes_back_to_its_first_server_when_it_had_time_to_recover() -> None:
    these = servers()
    these.failed(these.current(0), REFUSED, 10.0)
    assert in_use(these, 10.0 + RETURN_S - 0.1) == "http://b:2/base"
    these.failed(these.current(11.0), REFUSED, 20.0)
    assert in_use(these, 10.0 + RETURN_S) == "https://c"
    assert in_use(these, 20.0 + RETURN_S) == "http://a:1"


def test_many_clients_spread_over_the_servers() -> None:
    assert {servers_of(THREE).current(0).url for _ in range(200)} == set(THREE.split(","))


def test_each_move_is_logged_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    these = servers()
    first = these.current(0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            these.failed(first, REFUSED, 0)
    assert [record.getMessage() for record in caplog.records] == ["m (unreachable); continuing with http://b:2/base"]


def test_one_of_several_servers_gets_less_time_to_accept_a_connection() -> None:
    assert (servers().connect_s(10), servers().connect_s(1), servers("http://a").connect_s(10)) == (CONNECT_S, 1, 10)


def waits(count: int, *failures: errors.DuelineApiError, patience: Patience = Patience()) -> list[float]:
    """What a call waits after each of these failures, at `count` servers."""
    tries = Tries(patience, calls.get("t", "a"), 10, count)
    return [tries.wait_s(failure, 0, draw=0) for failure in failures]


def test_the_other_servers_are_tried_at_once_and_then_the_client_waits() -> None:
    draining = error_of("draining", "m")
    draining.retry_after_s = 1.0
    assert waits(3, *[REFUSED] * 7) == [0, 0, 0.1, 0, 0, 0.2, 0]
    assert waits(2, draining, draining, UNKNOWN) == [0, 1.1, 0]
    assert waits(1, REFUSED, REFUSED) == [0.1, 0.2]
    assert waits(3, error_of("rate_limited", "m")) == [0.1]


def test_where_a_person_waits_all_servers_are_tried_once() -> None:
    impatient = Patience(unreachable=False)
    assert waits(2, REFUSED, patience=impatient) == [0]
    with pytest.raises(errors.Unreachable):
        waits(2, REFUSED, REFUSED, patience=impatient)


def test_a_single_try_is_one_try_at_one_server() -> None:
    with pytest.raises(errors.Unreachable):
        waits(3, REFUSED, patience=Patience(deadline_s=0))


def test_a_call_that_must_not_be_repeated_goes_on_only_if_it_was_certainly_not_done() -> None:
    once = calls.delete_topic("t")
    assert Tries(Patience(), once, 10, 2).wait_s(REFUSED, 0) == 0
    with pytest.raises(errors.UnknownOutcome):
        Tries(Patience(), once, 10, 2).wait_s(UNKNOWN, 0)
