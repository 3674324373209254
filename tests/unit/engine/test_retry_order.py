"""Whose retry counts: the job's, the topic's, the push target's, the push default, the server's default."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import NS, EngineKit
from msgspec import UNSET

from dueline.engine.commands import Send, TopicPatch
from dueline.engine.job import BodyKind
from dueline.engine.policy import AT_ONCE, DEFAULT_RETRY, Backoff, Ladder, Retry, TopicPolicy
from dueline.engine.push_target import PUSH_RETRY, PushTarget, StoredTarget, loaded_target, stored_target
from dueline.engine.topics import TopicConfig, pack_config, unpack_config

JOB, TOPIC, TARGET = Backoff(1), Ladder((2, 2)), Ladder((3,))
NO_TARGET = object()


@pytest.mark.parametrize(
    ("job", "topic", "target", "counts", "attempts"),
    [
        (JOB, TOPIC, TARGET, JOB, 20),
        (AT_ONCE, TOPIC, TARGET, AT_ONCE, 20),
        (UNSET, TOPIC, TARGET, TOPIC, 3),
        (UNSET, AT_ONCE, TARGET, AT_ONCE, 20),
        (UNSET, None, TARGET, TARGET, 2),
        (UNSET, None, AT_ONCE, AT_ONCE, 20),
        (UNSET, None, None, PUSH_RETRY, 20),
        (UNSET, None, NO_TARGET, DEFAULT_RETRY, 20),
        (UNSET, AT_ONCE, NO_TARGET, AT_ONCE, 20),
    ],
)
@pytest.mark.parametrize("options", [{}, {"lease_ms": 5}], ids=["plain", "with options"])
async def test_the_first_that_is_set_counts_and_none_is_set(
    job: Retry,
    topic: Retry | None,
    target: Retry | None,
    counts: Retry,
    attempts: int,
    options: dict[str, Any],
    kit: EngineKit,
) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(retry=topic)))
    if target is not NO_TARGET:
        await kit.engine.set_push(NS, "mail", PushTarget(url="https://example.com", retry=target))
    await kit.engine.send(NS, "mail", Send("a", b"1", BodyKind.JSON, retry=job, **options))
    policy = (await kit.engine.get(NS, "mail", "a")).policy
    assert (policy.retry, policy.max_attempts) == (counts, attempts)


@pytest.mark.parametrize("retry", [None, AT_ONCE, TOPIC, JOB])
def test_none_and_unset_are_kept_apart_in_what_is_stored(retry: Retry | None) -> None:
    target = PushTarget(url="https://example.com", retry=retry)
    assert loaded_target(stored_target(target)) == target
    config = TopicConfig(TopicPolicy(retry=retry, by_worker=frozenset({"ttl_ms", "retry"})), push=target)
    assert unpack_config(pack_config(config)) == config


def test_what_was_stored_before_none_was_a_value_is_unset() -> None:
    assert unpack_config(b'{"policy":{"max_attempts":4},"push":{"url":"https://example.com"}}') == TopicConfig(
        TopicPolicy(max_attempts=4), push=PushTarget(url="https://example.com", breaker=None)
    )
    assert loaded_target(StoredTarget()).retry is None
