"""Delayed sends per second: every contestant and every way, in turns; then a count of the jobs really in the store."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from ..broken import Broken
from .processes import Producer, Store

WAYS = {"one": "one at a time", "fifty": "50 at once", "bulk": "in bulk (1000)"}
WARM_S = 0.3


class Rates(msgspec.Struct, frozen=True):
    """One contestant on one store: the jobs per second of each round, by way, and its process's CPU time per job, which
    hardly changes when others use the machine. Ways that the library does not offer are missing."""

    rounds: dict[str, list[float]]
    cpu_us: dict[str, list[float]]
    sent: int

    def per_s(self, way: str) -> float | None:
        return median(self.rounds[way]) if self.rounds.get(way) else None

    def cpu_us_of(self, way: str) -> float | None:
        return median(self.cpu_us[way]) if self.cpu_us.get(way) else None

    @property
    def best_per_s(self) -> float:
        return max(self.per_s(way) or 0.0 for way in self.rounds)


def measure(producers: Sequence[Producer], rounds: int, seconds: float) -> Mapping[str, Rates]:
    """The rates by contestant. Each round has a new order, so that nobody always follows the same contestant."""
    rates: dict[str, dict[str, list[float]]] = {one.contestant.name: {way: [] for way in one.ways} for one in producers}
    cpu_us: dict[str, dict[str, list[float]]] = {
        one.contestant.name: {way: [] for way in one.ways} for one in producers
    }
    sent = dict.fromkeys(rates, 0)
    order = random.Random(5)
    for number in range(rounds + 1):  # the first one warms up
        turns = [(producer, way) for producer in producers for way in producer.ways]
        order.shuffle(turns)
        for producer, way in turns:
            name = producer.contestant.name
            done = producer.ask(do="send", way=way, seconds=seconds if number else WARM_S)
            sent[name] += done["sent"]
            if number:
                rates[name][way].append(done["sent"] / done["seconds"])
                cpu_us[name][way].append(done["cpu_s"] * 1e6 / done["sent"])
    return {name: Rates(rates[name], cpu_us[name], sent[name]) for name in rates}


def check_stored(producer: Producer, store: Store, sent: int) -> None:
    """Check that all counted jobs are in the store. Raises Broken."""
    contestant = producer.contestant
    if contestant.ours:
        stored = producer.ask(do="stored")["stored"]
    else:
        stored = store.count(contestant.database, *contestant.stored)
    if stored != sent:
        raise Broken(f"{contestant.name}: {sent} jobs were counted as sent, {stored} are in the store")
