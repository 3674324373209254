"""The counting behind the limits: buckets, uses, and what is shown of them."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dueline.api.answers import LimitUse
from dueline.config.settings import NamespaceLimits
from dueline.dialects.http import PUBLIC, Request, Response, Route, TokenPlace
from dueline.engine.errors import DuelineError, QuotaExceeded
from dueline.rights import ALL, EVERYTHING, Grant, Right, TokenLimits
from dueline.server.quotas import Bucket, ConnectionQuota, Quotas, take
from dueline.server.router import Found

RATES = st.floats(0.01, 50)
PAUSES_S = st.lists(st.floats(0, 5), min_size=1, max_size=40)
UNHURRIED = settings(deadline=None)


class Owner:
    namespace: str | None = None

    def routes(self) -> list[Route]:
        return []

    def failed(self, request: Request, error: DuelineError) -> Response:
        return Response(429)


async def _handler(request: Request) -> Response:
    return Response(200)


class Whole(Owner):
    namespace = ALL


SEND = Found(Route("POST", "/", _handler, "send", Right.SEND, TokenPlace.HEADER), Owner())
METRICS = Found(Route("GET", "/", _handler, "metrics", Right.READ, TokenPlace.HEADER), Whole())
HEALTH = Found(Route("GET", "/", _handler, "healthz", *PUBLIC), Owner())


@UNHURRIED
@given(RATES, PAUSES_S)
def test_a_bucket_never_gives_more_than_its_rate_and_its_burst(rate: float, pauses_s: list[float]) -> None:
    bucket, now_s, taken = Bucket(rate), 100.0, []
    for pause_s in pauses_s:
        now_s += pause_s
        while take((bucket,), now_s):
            taken.append(now_s)
    burst = max(rate, 10)
    for first, start_s in enumerate(taken):
        for last in range(first, len(taken), 7):
            assert last - first + 1 <= burst + rate * (taken[last] - start_s) + 1e-6


@UNHURRIED
@given(RATES, PAUSES_S)
def test_a_bucket_gives_one_when_its_wait_is_over_and_not_long_before(rate: float, pauses_s: list[float]) -> None:
    bucket, now_s = Bucket(rate), 100.0
    for pause_s in pauses_s:
        now_s += pause_s
        while take((bucket,), now_s):
            pass
        wait_s = bucket.wait_s()
        assert 0 < wait_s <= 1 / rate + 1e-6
        assert not take((bucket,), now_s + wait_s * 0.9)
        now_s += wait_s + 1e-6
        assert take((bucket,), now_s)


@UNHURRIED
@given(RATES)
def test_a_bucket_that_rests_is_full_again_and_no_fuller(rate: float) -> None:
    bucket = Bucket(rate)
    for now_s in (0.0, 1e6):
        taken = 0
        while take((bucket,), now_s):
            taken += 1
        assert taken == int(max(rate, 10))


def test_a_server_without_rows_limits_nobody() -> None:
    assert Quotas().of(SEND, EVERYTHING, "n") is None
    assert Quotas({"m": NamespaceLimits(max_polls=1)}).of(SEND, EVERYTHING, "n") is None


def test_a_request_that_names_all_namespaces_is_limited() -> None:
    quotas = Quotas({"*": NamespaceLimits(requests_per_s=1)})
    assert quotas.of(SEND, EVERYTHING, "*") is not None


def test_health_and_what_is_about_the_whole_server_is_not_limited() -> None:
    quotas = Quotas({"*": NamespaceLimits(requests_per_s=1)})
    assert quotas.of(HEALTH, EVERYTHING, "n") is None
    assert quotas.of(METRICS, EVERYTHING, ALL) is None
    assert quotas.of(SEND, EVERYTHING, "n") is quotas.of(SEND, EVERYTHING, "n") is not None


def test_a_request_that_one_limit_refuses_costs_the_other_nothing() -> None:
    quotas = Quotas({"n": NamespaceLimits(requests_per_s=10), "m": NamespaceLimits()})
    grant = Grant(frozenset({Right.SEND}), token_id="t", limits=TokenLimits(requests_per_s=5))
    both, other = quotas.of(SEND, grant, "n"), quotas.of(SEND, grant, "m")
    assert both is not None
    assert other is not None
    assert [both.take(0) for _ in range(15)] == [True] * 10 + [False] * 5
    assert not other.take(0)  # the token's ten are used, too
    assert [both.take(0.3) for _ in range(3)] == [True, False, False]  # 0.3 s: three of the namespace, one of the token
    assert [both.take(0.5) for _ in range(3)] == [True, False, False]


def test_what_nobody_uses_is_forgotten_however_many_names_clients_choose() -> None:
    quotas = Quotas({"*": NamespaceLimits(requests_per_s=1, max_connections=5)})
    kept = quotas.of(SEND, EVERYTHING, "kept")
    for number in range(10_000):
        quotas.of(SEND, EVERYTHING, f"name-{number}")
    gc.collect()
    assert quotas.of(SEND, EVERYTHING, "kept") is kept
    assert len(quotas.in_use()) < 3000


def test_what_is_used_and_refused_is_shown_by_namespace() -> None:
    heard: list[str] = []
    quotas = Quotas(
        {"n": NamespaceLimits(max_connections=1, max_polls=2, max_queued_jobs=9, look_ups_per_s=3)},
        refused=lambda limit, error: heard.append(limit),
    )
    quota = quotas.of(SEND, EVERYTHING, "n")
    assert quota is not None
    first, second = ConnectionQuota(), ConnectionQuota()
    first.count(quota, 0)
    with pytest.raises(QuotaExceeded):
        second.count(quota, 0)
    queue = quotas.queue_of("n")
    assert queue is not None
    queue.jobs = 9
    with pytest.raises(QuotaExceeded, match=r"namespaces\.n\.max_queued_jobs"):
        queue.check(1)
    with quota.poll:
        assert quotas.in_use() == [
            LimitUse("max_connections", 1, 1, 1, "n"),
            LimitUse("max_polls", 2, 1, 0, "n"),
            LimitUse("max_queued_jobs", 9, 9, 1, "n"),
            LimitUse("look_ups_per_s", 3, None, 0, "n"),
        ]
    used, refused = quotas.samples()
    assert used.numbers == {("max_connections", "n"): 1, ("max_polls", "n"): 0, ("max_queued_jobs", "n"): 9}
    assert refused.numbers == {("max_connections", "n"): 1, ("max_queued_jobs", "n"): 1}
    assert heard == ["max_connections", "max_queued_jobs"]
    first.leave()
    second.count(quota, 0)


def test_what_a_token_uses_is_shown_with_its_id_beside_its_namespace() -> None:
    limits = TokenLimits(
        requests_per_s=5, max_connections=2, max_polls=3, max_pending_jobs=7, max_queued_jobs=4, push_allow=()
    )
    grant = Grant(frozenset({Right.SEND}), "n", token_id="t", generation=1, limits=limits)
    quotas = Quotas()
    quotas.pending = lambda: {"n": 6, "m": 1}
    assert quotas.of(SEND, EVERYTHING, "n") is None
    quota = quotas.of(SEND, grant, "n")
    assert quota is not None
    queue = quota.queue
    assert queue is not None
    ConnectionQuota().count(quota, 0)
    held = queue.hold(9)  # any call fits into an empty queue
    held = queue.hold(2, held)  # it is the same call
    with pytest.raises(QuotaExceeded, match=r"The token t may have 4 jobs .*limits\.max_queued_jobs of the token"):
        queue.hold(3)
    assert queue.jobs == held
    refusal = quotas.refuse_pending("n", 7, grant)
    assert refusal.message == (
        "The token t may have 7 pending jobs in its namespace (limits.max_pending_jobs of the token)."
    )
    with quota.poll:
        assert quotas.in_use() == [
            LimitUse("token_requests_per_s", 5, None, 0, "n", "t"),
            LimitUse("token_max_connections", 2, 1, 0, "n", "t"),
            LimitUse("token_max_polls", 3, 1, 0, "n", "t"),
            LimitUse("token_max_pending_jobs", 7, 6, 1, "n", "t"),
            LimitUse("token_max_queued_jobs", 4, 2, 1, "n", "t"),
        ]
    other = Grant(frozenset({Right.SEND}), "n", token_id="u", generation=1, limits=limits)
    quotas.of(SEND, other, "n")
    assert [row.refused for row in quotas.in_use() if row.token_id == "u"] == [0] * 5  # those of "t" are not its own
    used, refused = quotas.samples()
    assert used.numbers[("token_max_pending_jobs", "n")] == 6
    assert refused.numbers == {("token_max_pending_jobs", "n"): 1, ("token_max_queued_jobs", "n"): 1}


def test_only_so_many_namespaces_have_series_of_their_own() -> None:
    quotas = Quotas({"*": NamespaceLimits(max_pending_jobs=1)})
    for number in range(300):
        quotas.refuse_pending(f"name-{number}", 1)
    _, refused = quotas.samples()
    assert len(refused.numbers) == 200
    assert refused.numbers[("max_pending_jobs", "other")] == 101


async def test_look_ups_are_limited_per_second() -> None:
    quotas = Quotas({"n": NamespaceLimits(look_ups_per_s=0.001)})
    assert [quotas.look_up("n") for _ in range(10)] == [0.0] * 10
    assert 900 < quotas.look_up("n") < 1000
    assert quotas.look_up("m") == 0.0
