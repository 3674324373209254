"""Dueline beside the Python libraries that can delay a task: celery, rq, arq, dramatiq, huey.

    make bench-peers

One run, one machine, one store: the embedded Valkey's binary on a TCP port of loopback, first without an fsync per
write, then with `appendfsync always`. Each library has an environment of its own with pinned versions (`environments`)
and one producer process (`programs/`) that is told by JSON lines what to do, so that all of them are warm and take
turns in short rounds: a change of the machine's pace meets everyone.

Figures: delayed sends per second (`sending`), and how late jobs start in a worker that is otherwise idle
(`lateness`).
"""
