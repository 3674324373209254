"""How many replicas must have a change, while replicas come, go and are promoted."""

from __future__ import annotations

import pytest

from dueline.store.valkey.link import LinkLost
from dueline.store.valkey.replica_count import ASK_EVERY_S, SHORTFALL_S, ReplicaCount

from .test_witness import replicated


def info(*states: str) -> bytes:
    lines = [f"slave{n}:ip=127.0.0.1,port={7000 + n},{state}" for n, state in enumerate(states)]
    return "\r\n".join(["# Replication", "run_id:one", *lines, "master_failover_state:no-failover"]).encode()


ONLINE, SYNCING, SILENT = (
    "state=online,offset=10,lag=0,type=replica",
    "state=wait_bgsave,offset=0,lag=0",
    "state=online,offset=10,lag=10",
)


@pytest.mark.parametrize(
    ("replicas", "needed"),
    [((), 1), ((ONLINE,), 1), ((ONLINE, ONLINE), 2), ((ONLINE, SYNCING), 1), ((ONLINE, SILENT), 1)],
)
def test_all_replicas_that_follow_closely_must_have_a_change(replicas: tuple[str, ...], needed: int) -> None:
    count = ReplicaCount()
    count.heard(info(*replicas))
    assert count.needed == needed


def test_a_replica_that_is_missing_is_waited_for_and_then_given_up() -> None:
    count = ReplicaCount()
    count.heard(info(ONLINE, ONLINE))
    assert [count.enough(1, 100.0 + s) for s in (0.0, 1.0, SHORTFALL_S - 0.1)] == [False] * 3
    count.heard(info(ONLINE))
    assert count.needed == 2, "a replica that is gone may have been promoted"
    assert count.enough(1, 100.0 + SHORTFALL_S)
    assert (count.needed, count.enough(1, 101.0 + SHORTFALL_S)) == (1, True)


def test_a_replica_that_was_only_late_begins_no_new_wait() -> None:
    count = ReplicaCount()
    count.heard(info(ONLINE, ONLINE))
    assert [count.enough(n, at_s) for n, at_s in ((1, 0.0), (2, 1.0), (1, 2.0), (1, SHORTFALL_S))] == [
        *(False, True, False, False)
    ]


def test_without_any_replica_nothing_counts_however_long_it_lasts() -> None:
    count = ReplicaCount()
    assert [count.enough(0, at_s) for at_s in (0.0, SHORTFALL_S, 10 * SHORTFALL_S)] == [False] * 3


def test_the_replicas_are_asked_for_now_and_then() -> None:
    count = ReplicaCount()
    assert [count.should_ask(at_s) for at_s in (5.0, 5.0 + ASK_EVERY_S / 2, 5.0 + 2 * ASK_EVERY_S)] == [
        True,
        False,
        True,
    ]


async def test_a_change_that_one_of_two_replicas_has_is_not_answered() -> None:
    """The other one may have been promoted while this primary lives."""
    async with replicated() as (link, node):
        node.answers["INFO"] = lambda *_: info(ONLINE, ONLINE)
        node.answers["WAIT"] = lambda *_: 2
        assert await link.change("p:{t}:m", "EVALSHA") == b"OK"
        assert [words[1] for words in node.log if words[0] == "WAIT"] == ["2"]
        node.answers["WAIT"] = lambda *_: 1
        with pytest.raises(LinkLost, match="only 1 of 2 replicas have it") as lost:
            await link.change("p:{t}:m", "EVALSHA")
        assert lost.value.written
