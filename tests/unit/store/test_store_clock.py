"""The store's clock as a process knows it: what is a step, what is only a slow answer, and when a step is believed."""

from __future__ import annotations

from dueline.store.valkey.clock import StoreClock

HOUR_MS = 3_600_000


class Times:
    """Monotonic and wall time, moved by hand."""

    def __init__(self) -> None:
        self.mono_s = 100.0
        self.wall_s = 1_700_000_000.0

    def pass_s(self, seconds: float) -> None:
        self.mono_s += seconds
        self.wall_s += seconds


def seen(clock: StoreClock, store_now_ms: int) -> bool:
    """An answer without delay."""
    return clock.observe(store_now_ms, clock.asked())


def clock_of(times: Times) -> StoreClock:
    clock = StoreClock(monotonic=lambda: times.mono_s, wall=lambda: times.wall_s)
    assert clock.expectation() == (0, 0)
    assert seen(clock, 1_700_000_000_000)
    return clock


def test_the_expected_time_goes_on_with_monotonic_time() -> None:
    times = Times()
    clock = clock_of(times)
    times.pass_s(2.5)
    assert (clock.now_ms(), clock.expectation()) == (1_700_000_002_500, (1_700_000_002_500, 1_000))


def test_a_small_difference_is_followed() -> None:
    times = Times()
    clock = clock_of(times)
    times.pass_s(1)
    assert seen(clock, 1_700_000_001_900)
    assert clock.now_ms() == 1_700_000_001_900
    assert not clock.stepped


def test_a_slow_answer_is_no_step_wherever_it_waited() -> None:
    for waited_s in (0.0, 6.5, 13.0):  # in front of the store, or behind it: it ran so long after it was asked for
        times = Times()
        clock = clock_of(times)
        asked_ms = clock.asked()
        times.pass_s(13)
        assert clock.observe(1_700_000_000_000 + int(waited_s * 1000), asked_ms)
        assert (clock.steps, clock.now_ms()) == (0, 1_700_000_013_000)


def test_a_step_behind_a_slow_answer_is_still_one() -> None:
    times = Times()
    clock = clock_of(times)
    asked_ms = clock.asked()
    times.pass_s(2)
    assert not clock.observe(1_700_000_000_000 + HOUR_MS, asked_ms)
    assert not clock.observe(1_700_000_000_000 - HOUR_MS, asked_ms)


def test_a_step_that_this_machine_does_not_see_is_never_believed() -> None:
    times = Times()
    clock = clock_of(times)
    for _ in range(20):
        times.pass_s(1)
        assert not seen(clock, int(times.wall_s * 1000) + HOUR_MS)
    assert (clock.stepped, clock.steps) == (True, 1)
    assert clock.now_ms() == int(times.wall_s * 1000)


def test_a_step_that_this_machine_sees_too_is_believed_after_a_grace() -> None:
    times = Times()
    clock = clock_of(times)
    times.wall_s += 3600
    assert not seen(clock, int(times.wall_s * 1000))
    times.pass_s(4.9)
    assert not seen(clock, int(times.wall_s * 1000))
    times.pass_s(0.2)
    assert seen(clock, int(times.wall_s * 1000))
    assert (clock.stepped, clock.now_ms()) == (False, int(times.wall_s * 1000))


def test_a_clock_that_comes_back_is_believed_at_once() -> None:
    times = Times()
    clock = clock_of(times)
    assert not seen(clock, 1_700_000_000_000 - HOUR_MS)
    times.pass_s(1)
    assert seen(clock, 1_700_000_001_000)
    assert not clock.stepped
