"""Load with a recorded history: producers and consumers that behave like real ones, and sometimes badly on purpose.

A producer chooses the id before its first try and retries with the same id until it has a definite answer. It sends one
or several jobs, with delays from zero to two seconds. Sometimes it cancels a job, or sends another one under a used id.
A consumer long-polls with short leases. It mostly acks; sometimes it releases, extends, abandons a job so that its
lease expires, or acks with a token that it knows to be stale.

The number of jobs, the time and the tries per job are all bounded. After `stop_sending` the consumers only ack, so that
the topics drain.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from dueline.api.answers import LeasedJob
from dueline.client.errors import DuelineApiError
from dueline.testing.checker import UNAVAILABLE
from dueline.testing.history import Final, Outcome, Recorder
from tools.faults.recording_client import Job, RecordingClient, Verdict


class Plan(msgspec.Struct, frozen=True):
    """How much load, and how much misbehaviour. `retry_s` must stay below the retention of ended jobs, or a retry could
    create the same job again."""

    topics: tuple[str, ...] = ("crash-a", "crash-b")
    producers: int = 4
    consumers: int = 4
    max_jobs: int = 20_000
    max_delay_ms: int = 2_000
    lease_ms: tuple[int, ...] = (300, 800)
    wait_ms: int = 400
    pause_ms: float = 3.0  # between two sends of one producer
    retry_s: float = 20.0
    body_bytes: int = 60
    timeout_s: float = 4.0
    wild: bool = True  # releases, cancels, stale acks and the like, in these shares:
    plain_share: float = 0.75  # deliveries that are simply acked
    cancel_share: float = 0.03  # of the sends
    conflict_share: float = 0.01
    stale_share: float = 0.3  # of the pulls that returned jobs: one more call with an old token
    few_attempts_share: float = 0.05  # jobs with two attempts instead of fifty


class Load:
    """The clients of one run. Call `start`, then `stop_sending`, `drained`, `dump` and `stop`, in this order."""

    def __init__(self, plan: Plan, addresses: Sequence[tuple[str, int]], recorder: Recorder, seed: int = 0) -> None:
        self.plan = plan
        self.addresses = addresses
        self.recorder = recorder
        self.acknowledged = 0
        self._seed = seed
        self._made = 0
        self._sending = True
        self._draining = False
        self._clients: list[RecordingClient] = []
        self._producers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []
        self._progress = asyncio.Condition()

    async def start(self) -> None:
        for i in range(self.plan.producers):
            self._producers.append(asyncio.create_task(self._produce(i)))
        for i in range(self.plan.consumers):
            self._consumers.append(asyncio.create_task(self._consume(i)))

    async def stop(self) -> None:
        """Stop everything that is still running."""
        self._sending = False
        tasks = self._producers + self._consumers
        self._producers, self._consumers = [], []
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    @property
    def bugs(self) -> list[str]:
        """The answers with status 500, and other server bugs, that the clients met."""
        return [bug for client in self._clients for bug in client.bugs]

    async def acknowledged_reaches(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until the sends of this many jobs in total were acknowledged. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s), self._progress:
            await self._progress.wait_for(lambda: self.acknowledged >= count or not self._sending)

    async def stop_sending(self) -> None:
        """Let the producers finish what they have started; from now on consumers only ack."""
        self._sending = False
        self._draining = True
        await asyncio.gather(*self._producers)

    async def drained(self, timeout_s: float = 30.0) -> bool:
        """Wait until no live job is left in any topic. False if some are left after `timeout_s`."""
        client = self._client("drain", 0)
        try:
            async with asyncio.timeout(timeout_s):
                for topic in self.plan.topics:
                    while True:
                        if await client.live(topic) == 0:
                            break
                        await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True

    async def dump(self, timeout_s: float = 10.0) -> Final:
        """The final state of every topic."""
        client = self._client("dump", 0)
        final: Final = {}
        async with asyncio.timeout(timeout_s):
            for topic in self.plan.topics:
                while True:
                    try:
                        final |= await client.dump(topic)
                        break
                    except DuelineApiError:
                        await asyncio.sleep(0.05)
        return final

    def _client(self, name: str, i: int) -> RecordingClient:
        host, port = self.addresses[i % len(self.addresses)]
        client = RecordingClient(name, host, port, self.recorder, self.plan.timeout_s)
        self._clients.append(client)
        return client

    # Producers

    async def _produce(self, number: int) -> None:
        dice = random.Random(f"{self._seed}/producer/{number}")
        client = self._client(f"p{number}", number)
        while self._sending and self._made < self.plan.max_jobs:
            topic = dice.choice(self.plan.topics)
            jobs = [self._job(number, dice) for _ in range(1 if dice.random() < 0.7 else dice.randint(2, 8))]
            await self._send_until_certain(client, topic, jobs, dice)
            if self.plan.wild:
                await self._misbehave(client, topic, dice.choice(jobs), dice)
            await asyncio.sleep(self.plan.pause_ms * dice.random() * 2 / 1000)

    def _job(self, producer: int, dice: random.Random) -> Job:
        self._made += 1
        id = f"p{producer}-{self._made}-{dice.getrandbits(40):010x}"
        body = msgspec.json.encode({"job": id, "pad": "x" * dice.randint(0, self.plan.body_bytes * 2)})
        delay_ms = 0 if dice.random() < 0.4 else dice.randint(1, max(1, self.plan.max_delay_ms))
        few = self.plan.wild and dice.random() < self.plan.few_attempts_share
        return Job(id, body, delay_ms, max_attempts=2 if few else 50)

    async def _send_until_certain(
        self, client: RecordingClient, topic: str, jobs: list[Job], dice: random.Random
    ) -> None:
        """Retry unknown and unavailable sends with the same ids; do not retry refused ones."""
        give_up = asyncio.get_running_loop().time() + self.plan.retry_s
        while jobs and asyncio.get_running_loop().time() < give_up:
            verdicts = await client.send(topic, jobs)
            done = sum(1 for v in verdicts if v.outcome is Outcome.OK)
            if done:
                self.acknowledged += done
                async with self._progress:
                    self._progress.notify_all()
            jobs = [job for job, verdict in zip(jobs, verdicts, strict=True) if _worth_repeating(verdict)]
            if jobs:
                await asyncio.sleep(dice.uniform(0.03, 0.15))

    async def _misbehave(self, client: RecordingClient, topic: str, job: Job, dice: random.Random) -> None:
        roll = dice.random()
        if roll < self.plan.cancel_share:
            await asyncio.sleep(dice.uniform(0, 0.05))
            await client.cancel(topic, job.id)
        elif roll < self.plan.cancel_share + self.plan.conflict_share:
            await client.send(topic, [Job(job.id, b'{"another":"body"}', job.delay_ms, job.max_attempts)])

    # Consumers

    async def _consume(self, number: int) -> None:
        dice = random.Random(f"{self._seed}/consumer/{number}")
        client = self._client(f"c{number}", number)
        stale: list[LeasedJob] = []
        turn = number
        while True:
            turn += 1
            topic = self.plan.topics[turn % len(self.plan.topics)]
            leases = await client.pull(
                topic,
                max=dice.randint(1, 10),
                lease_ms=dice.choice(self.plan.lease_ms),
                wait_ms=0 if dice.random() < 0.2 else self.plan.wait_ms,
            )
            if leases is None:
                await asyncio.sleep(dice.uniform(0.03, 0.15))
            elif self._draining or not self.plan.wild:
                await self._ack_until_certain(client, leases, dice)
            else:
                await self._work(client, leases, stale, dice)

    async def _work(
        self, client: RecordingClient, leases: list[LeasedJob], stale: list[LeasedJob], dice: random.Random
    ) -> None:
        plain = [lease for lease in leases if dice.random() < self.plan.plain_share]
        await self._ack_until_certain(client, plain, dice)
        for lease in leases:
            if lease not in plain:
                await dice.choices(_DEEDS, _WEIGHTS)[0](self, client, lease, stale, dice)
        if stale and dice.random() < self.plan.stale_share:
            old = stale.pop(dice.randrange(len(stale)))
            await dice.choice((self._late_ack, self._late_release, self._late_extend))(client, old)

    async def _ack_until_certain(self, client: RecordingClient, leases: list[LeasedJob], dice: random.Random) -> None:
        for _ in range(20):
            if not leases:
                return
            verdicts = await client.ack(leases)
            leases = [lease for lease, verdict in zip(leases, verdicts, strict=True) if _worth_repeating(verdict)]
            if leases:
                await asyncio.sleep(dice.uniform(0.01, 0.05))

    async def _release(
        self, client: RecordingClient, lease: LeasedJob, stale: list[LeasedJob], dice: random.Random
    ) -> None:
        await client.release(lease, dice.choice((0, 0, 50, 200)), count=dice.random() < 0.7)
        stale.append(lease)

    async def _extend(
        self, client: RecordingClient, lease: LeasedJob, stale: list[LeasedJob], dice: random.Random
    ) -> None:
        verdict = await client.extend(lease, 1000)
        if verdict.outcome is Outcome.OK:
            await asyncio.sleep(dice.uniform(0, 0.05))
        await self._ack_until_certain(client, [lease], dice)

    async def _forget(
        self, client: RecordingClient, lease: LeasedJob, stale: list[LeasedJob], dice: random.Random
    ) -> None:
        stale.append(lease)

    async def _late_ack(self, client: RecordingClient, lease: LeasedJob) -> None:
        await client.ack([lease])

    async def _late_release(self, client: RecordingClient, lease: LeasedJob) -> None:
        await client.release(lease)

    async def _late_extend(self, client: RecordingClient, lease: LeasedJob) -> None:
        await client.extend(lease, 300)


_DEEDS: tuple[Callable[..., Awaitable[None]], ...] = (Load._release, Load._extend, Load._forget)
_WEIGHTS = (3, 3, 2)


def _worth_repeating(verdict: Verdict) -> bool:
    if verdict.outcome is Outcome.INFO:
        return True
    return verdict.outcome is Outcome.FAIL and verdict.code in UNAVAILABLE
