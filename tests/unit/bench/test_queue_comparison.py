"""The comparison with other queues: who is compared with whom. Nothing is measured here."""

from __future__ import annotations

from bench.peers.queues import Found, Round, lines


def rounds(*per_s: float, **cpu_us: float) -> list[Round]:
    return [Round(rate, cpu_us) for rate in per_s]


FOUND = Found(
    {
        "dueline": {
            "send": rounds(400, 300, 500, server=20, load=8),
            "life": rounds(130, server=60, load=19),
            "chained": rounds(140, server=50, load=19),
        },
        "library": {"send": rounds(600, python=13), "life": rounds(180, python=50)},
        "bullmq": {"send": rounds(200, node=30), "life": rounds(100, node=60)},
    },
    {"dueline": "dueline 1", "library": "library 1", "bullmq": "bullmq 6"},
    {"beanstalkd": "not on the PATH"},
)


def test_each_of_our_works_stands_beside_the_same_work_of_a_queue_that_is_there() -> None:
    assert [(line.what, line.ratio, line.met) for line in lines(FOUND)] == [
        ("single sends, beside bullmq", 2.0, None),
        ("whole lives, beside bullmq", 1.3, True),
        ("whole lives, ack in the next pull, 128 at once, beside bullmq", 1.4, True),
        ("single sends by the Python library, beside bullmq", 3.0, None),
        ("whole lives by the Python library, beside bullmq", 1.8, True),
    ]


def test_a_line_says_what_a_job_cost_each_process() -> None:
    first = lines(FOUND)[0]
    assert first.note == "dueline 1: server 20 + load 8; base: bullmq 6: node 30 us of CPU"
    assert first.details["cpu_us"] == {"server": 20, "load": 8}
