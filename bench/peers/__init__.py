"""Dueline compared with beanstalkd and BullMQ (`queues`), and with Python libraries that can delay a task: celery, rq,
arq, dramatiq, huey.

    make bench-peers

The libraries share one machine and one store: the embedded Valkey's binary on a loopback TCP port, first without an
fsync per write, then with `appendfsync always`. Each library has its own environment with pinned versions
(`environments`) and one producer process (`programs/`) controlled by JSON lines. So all of them are warm and take turns
in short rounds, and a change in the machine's speed affects everyone.

Measured are delayed sends per second (`sending`), and how late jobs start in an otherwise idle worker (`lateness`).
"""
