"""Windows of the monitor, with time moved by hand."""

from __future__ import annotations

from dueline.dialects.camellia.monitor import Counts, Monitor, Report
from dueline.dialects.camellia.node import report_of, samples_of
from dueline.engine.job import Reason
from dueline.engine.metrics import EngineMetrics
from dueline.metrics.metric import merge


class ManualClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> int:
        return self.ms


def test_a_window_is_shown_when_it_is_complete_and_forgotten_after_the_next() -> None:
    clock, metrics = ManualClock(), EngineMetrics()
    monitor = Monitor("camellia", 1_000, clock, metrics)
    monitor.of("t").send_msg += 2
    assert monitor.report() == Report({}, 5_000)
    clock.ms = 6_000
    assert monitor.report().topics == {"t": Counts(send_msg=2)}
    monitor.of("u").get_msg += 1
    assert monitor.report().topics == {"t": Counts(send_msg=2)}
    clock.ms = 7_999
    assert monitor.report().topics == {"u": Counts(get_msg=1)}
    clock.ms = 8_000
    assert monitor.report().topics == {}


def test_windows_in_which_nobody_looked_are_empty() -> None:
    clock = ManualClock()
    monitor = Monitor("camellia", 1_000, clock, EngineMetrics())
    monitor.of("t").send_msg += 1
    clock.ms = 7_500
    assert monitor.report() == Report({}, 5_000)


def test_what_time_did_is_counted_once_and_only_of_its_own_namespace() -> None:
    clock, metrics = ManualClock(), EngineMetrics()
    monitor = Monitor("camellia", 1_000, clock, metrics)
    monitor.report()
    own, other = metrics.of("camellia", "t"), metrics.of("default", "t")
    own.leases_lost, own.dead[Reason.EXPIRED], own.dead[Reason.EXHAUSTED] = 3, 4, 2
    other.leases_lost = other.dead[Reason.EXPIRED] = 9
    monitor.rejected("t")  # one of the exhausted ended by an ack=false, not by a timeout
    clock.ms = 6_000
    assert monitor.report().topics == {"t": Counts(trigger_msg_timeout=4, trigger_msg_end_life=6)}
    clock.ms = 7_000
    assert monitor.report().topics == {}
    own.leases_lost += 1
    clock.ms = 8_000
    assert monitor.report().topics == {"t": Counts(trigger_msg_timeout=1)}


def test_topics_of_a_window_are_bounded() -> None:
    clock = ManualClock()
    monitor = Monitor("camellia", 1_000, clock, EngineMetrics())
    for n in range(1_500):
        monitor.of(f"t{n}").send_msg += 1
    clock.ms = 6_000
    assert len(monitor.report().topics) == 1_000


def test_processes_of_one_server_are_added_up() -> None:
    one = Report({"t": Counts(send_msg=1, gaps=2, gap_sum_ms=10, gap_max_ms=8)}, 7)
    two = Report({"t": Counts(send_msg=2, gaps=1, gap_sum_ms=20, gap_max_ms=20), "u": Counts(ack_msg=1)}, 3)
    whole = {"t": Counts(send_msg=3, gaps=3, gap_sum_ms=30, gap_max_ms=20), "u": Counts(ack_msg=1)}
    assert report_of(merge([samples_of(one), samples_of(two)])) == Report(whole, 7)
