"""The wiring of push: egress rules, outgoing calls, discovery, couriers, and a dispatcher per topic with a target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .._version import __version__
from ..config.settings import Settings
from ..dialects.contract import PushRules
from ..engine.engine import Engine
from ..engine.errors import EgressRefused
from ..push.courier import Courier
from ..push.discovery import Resolver
from ..push.discovery.chain import ResolverChain
from ..push.discovery.eureka import EurekaMissing, EurekaResolver
from ..push.discovery.static import StaticResolver, instance_at
from ..push.dispatcher import PushContext
from ..push.egress import check_token_list, token_list
from ..push.header_rules import check_target_headers
from ..push.hosts import Hosts
from ..push.http_couriers import CarriedCourier, HttpCourier
from ..push.manager import PushManager
from ..push.observer import NullObserver, PushObserver
from ..push.outgoing_calls import OutgoingCalls
from ..push.signing import check_secret, masked
from ..rights import EVERYTHING, Grant
from .start_checks import egress_of

LAST_CALLS_S = 1.0  # for releasing jobs after the drain


def resolver_of(settings: Settings) -> Resolver:
    discovery = settings.discovery
    table = StaticResolver(
        {name: tuple(instance_at(one.url, one.tasks) for one in some) for name, some in discovery.static.items()}
    )
    if discovery.eureka.url is None:
        return table
    return ResolverChain(
        table, EurekaResolver(discovery.eureka.url, discovery.eureka.prefer_ip, discovery.eureka.refresh_ms)
    )


class Push:
    """Makes the outgoing calls of this process. `rules` are the checks that dialects apply to targets. When such a
    check refuses a URL, `denied` is called with the reason. When it accepts a URL with a host name, `choose_name` is
    called, which may raise QuotaExceeded. Dialects add their own `couriers` before `start`."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        watch: PushObserver = NullObserver(),
        denied: Callable[[str], None] = lambda reason: None,
        look_up: Callable[[str], float] = lambda namespace: 0.0,
        choose_name: Callable[[str, Grant], None] = lambda namespace, grant: None,
    ) -> None:
        push = settings.push
        self._egress = egress_of(settings)
        self._denied = denied
        self._choose_name = choose_name
        self.rules = PushRules(
            url=self.check_url,
            service=self.check_service,
            allow_list=check_token_list,
            headers=check_target_headers,
            secret=check_secret,
            mask=masked,
        )
        self._enabled = push.enabled
        self.resolver = resolver_of(settings)
        self._outgoing = OutgoingCalls(
            self._egress,
            follow_redirects=push.follow_redirects,
            user_agent=push.user_agent or f"dueline/{__version__}",
            max_per_host=0,  # each target has its own limit, over all processes
            look_up=look_up,
        )
        now_ms = engine.store.now_ms
        self.couriers: dict[str, Courier] = {
            "http": HttpCourier(self.resolver, now_ms),
            "carried": CarriedCourier(now_ms),
        }
        self.manager = PushManager(
            PushContext(
                engine=engine,
                caller=self._outgoing,
                couriers=self.couriers,
                hosts=Hosts(push.per_host),
                watch=watch,
            )
        )

    def check_url(self, url: str, namespace: str, grant: Grant = EVERYTHING) -> None:
        """Refuse a URL that this server would not call for a namespace, or that the caller may not choose. Raises
        InvalidField, EgressRefused or QuotaExceeded."""
        try:
            destination = self._egress.of(namespace).check_url(url)
            if grant.push_allow is not None:
                token_list(grant.push_allow).check(destination)
        except EgressRefused as refused:
            self._denied(refused.message)
            raise
        if destination.address is None:
            self._choose_name(namespace, grant)

    def check_service(self, service: str, grant: Grant) -> None:
        """Refuse a service that the caller may not choose. Raises EgressRefused."""
        try:
            if grant.push_allow is not None:
                token_list(grant.push_allow).check_service(service)
        except EgressRefused as refused:
            self._denied(refused.message)
            raise

    async def start(self) -> None:
        """Raises EurekaMissing. With push disabled only discovery starts, because dialects list its services."""
        await self.resolver.start()
        await self._outgoing.start()
        if self._enabled:
            self.manager.start()

    async def stop(self, drain_s: float, hasten: asyncio.Event) -> None:
        """Stop pulling, let running calls finish within drain_s, release the other jobs. No call is made afterwards."""
        hurry = asyncio.create_task(hasten.wait())
        hurry.add_done_callback(lambda task: None if task.cancelled() else self.manager.hurry())
        ending = asyncio.create_task(self.manager.stop(drain_s))
        await asyncio.wait([ending], timeout=drain_s + LAST_CALLS_S)
        hurry.cancel()
        if not ending.done():  # the store does not answer: the leases of these jobs expire instead
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
        await self._outgoing.stop()
        await self.resolver.stop()


__all__ = ["EurekaMissing", "Push"]
