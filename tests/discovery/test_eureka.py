"""Our reading of a registry: both sides are py-eureka-client's (applications register with it, we look up with it)."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.error import HTTPError

import pytest
from py_eureka_client.http_client import HttpRequest

from dueline.push.discovery import Instance
from dueline.push.discovery.eureka import EurekaResolver, peers_of
from dueline.push.discovery.eureka_http import RegistryHttp
from tests.kit.async_tests import async_fixture
from tests.kit.eureka import Fault, Registry
from tests.kit.spring_app import SpringApp
from tests.kit.waiting import turns, until

T = TypeVar("T")


@asynccontextmanager
async def looking_up(**options: int | bool) -> AsyncIterator[tuple[Registry, EurekaResolver]]:
    """A registry and a resolver that asks it."""
    registry = Registry()
    await registry.start()
    resolver = EurekaResolver(registry.url, **options)  # type: ignore[arg-type]
    await resolver.start()
    try:
        yield registry, resolver
    finally:
        await resolver.stop()
        await registry.stop()


@async_fixture
async def registry_and_resolver() -> AsyncIterator[tuple[Registry, EurekaResolver]]:
    async with looking_up() as both:
        yield both


@pytest.fixture
def registry(registry_and_resolver: tuple[Registry, EurekaResolver]) -> Registry:
    return registry_and_resolver[0]


@pytest.fixture
def resolver(registry_and_resolver: tuple[Registry, EurekaResolver]) -> EurekaResolver:
    return registry_and_resolver[1]


async def registered(registry: Registry, name: str, tasks: str | None, port: int = 9024) -> SpringApp:
    app = SpringApp(name)
    app.port = port
    await app.register(registry.url, tasks)
    return app


def billing(port: int, tasks: str) -> Instance:
    return Instance(
        f"http://127.0.0.1:{port}",
        tuple(tasks.split(", ")),
        service="billing",
        id=f"127.0.0.1:billing:{port}",
        metadata={"management.port": str(port), "zone": "default", "delay-queue:task": tasks},
    )


async def test_instances_are_found_in_the_registrys_order_with_what_they_work_on(
    registry: Registry, resolver: EurekaResolver
) -> None:
    await registered(registry, "billing", "task1, task2", 9030)
    await registered(registry, "billing", "task2", 9024)
    assert await resolver.instances("billing") == (billing(9030, "task1, task2"), billing(9024, "task2"))


async def test_a_service_is_the_same_in_any_case(registry: Registry, resolver: EurekaResolver) -> None:
    await registered(registry, "Billing", "task1")
    for name in ("billing", "BILLING", "biLLing"):
        assert [one.url for one in await resolver.instances(name)] == ["http://127.0.0.1:9024"]
    assert len([1 for _, path in registry.asked if path == "apps/BILLING"]) == 2, "one of them registered"


async def test_only_instances_that_are_up_are_found(registry: Registry, resolver: EurekaResolver) -> None:
    app = await registered(registry, "billing", "task1")
    await app.set_status("DOWN")
    assert await resolver.instances("billing") == ()


async def test_a_name_that_is_only_a_virtual_host_name_is_found(registry: Registry, resolver: EurekaResolver) -> None:
    app = SpringApp("billing-cluster-7")
    app.port = 9024
    await app.register(registry.url, "task1", vip="billing")
    assert [one.url for one in await resolver.instances("billing")] == ["http://127.0.0.1:9024"]


async def test_nobody_and_no_name_are_answers(registry: Registry, resolver: EurekaResolver) -> None:
    await registered(registry, "billing", "task1")
    assert (await resolver.instances("mail"), await resolver.instances("")) == ((), ())
    assert await resolver.instances("../apps") == ()


async def test_all_services_with_their_instances(registry: Registry, resolver: EurekaResolver) -> None:
    assert await resolver.services() == {}
    await registered(registry, "billing", "task1")
    await registered(registry, "mail", None)

    other = EurekaResolver(registry.url)
    await other.start()
    found = await other.services()
    await other.stop()
    assert {name: [one.tasks for one in some] for name, some in found.items()} == {
        "billing": [("task1",)],
        "mail": [None],
    }


async def test_a_registry_that_fails_has_no_instances_and_its_earlier_answers_stay() -> None:
    async with looking_up(timeout_ms=200) as (registry, resolver):
        await registered(registry, "billing", "task1")
        known = await resolver.instances("billing")
        for fault in Fault:
            registry.fault = fault
            assert await resolver.instances(f"unknown-{fault.name}") == ()
            await turns()
            assert await resolver.instances("billing") == known
        registry.fault = None
        await registry.stop()
        assert await resolver.instances("unknown-closed") == ()


async def test_of_several_registries_the_first_that_answers_is_asked_from_then_on() -> None:
    down, up = Registry(), Registry()
    await down.start()
    await up.start()
    down.fault = Fault.BROKEN
    await registered(up, "billing", "task1")
    resolver = EurekaResolver(f"{down.url}, {up.url}/")
    await resolver.start()
    assert len(await resolver.instances("billing")) == 1
    assert await resolver.instances("mail") == ()
    assert down.asked == [("GET", "apps/BILLING")]
    await resolver.stop()
    await down.stop()
    await up.stop()


def test_the_spellings_of_the_registrys_address() -> None:
    assert peers_of("http://one:8761/eureka/,https://two/eureka ,http://[::1]:8761, ") == [
        "http://one:8761/eureka/",
        "https://two/eureka/",
        "http://[::1]:8761/eureka/",
    ]


async def test_a_user_and_a_password_may_stand_in_the_address() -> None:
    registry = Registry()
    await registry.start()
    await registered(registry, "billing", "task1")
    registry.password = "us$er:p+@ss"
    found: list[int] = []
    for user in ("us$er:p+%40ss@", "us$er:wrong@", ""):
        resolver = EurekaResolver(registry.url.replace("//", f"//{user}"))
        await resolver.start()
        found.append(len(await resolver.instances("billing")))
        await resolver.stop()
    assert found == [1, 0, 0]
    await registry.stop()


async def test_our_transport_is_one_of_py_eureka_client(registry: Registry) -> None:
    await registered(registry, "billing", None)
    ours = RegistryHttp()
    request = HttpRequest(f"{registry.url}/apps/BILLING", headers={"Accept": "application/json"})
    assert json.loads((await ours.urlopen(request, timeout=5)).body_text)["application"]["name"] == "BILLING"
    with pytest.raises(HTTPError):
        await ours.urlopen(f"{registry.url}/apps/NOBODY", timeout=5)
    await ours.close()


async def test_a_resolver_can_be_stopped_twice_and_before_its_start_and_then_knows_nobody() -> None:
    resolver = EurekaResolver("http://127.0.0.1:9/eureka")
    await resolver.stop()
    assert await resolver.instances("billing") == ()
    await resolver.start()
    await resolver.stop()
    await resolver.stop()


async def test_a_look_up_that_hangs_is_ended_by_the_stop() -> None:
    async with looking_up(timeout_ms=600_000) as (registry, resolver):
        registry.fault = Fault.SILENT
        asking = asyncio.create_task(resolver.instances("billing"))  # type: ignore[arg-type]
        await registry.was_asked.wait()
        await resolver.stop()
        assert await asking == ()


@pytest.mark.skipif(
    "EUREKA_URL" not in os.environ or not os.environ["EUREKA_URL"],
    reason="needs a real Eureka server: EUREKA_URL=http://127.0.0.1:8761/eureka make test-eureka",
)
async def test_a_real_registry_is_read_as_ours() -> None:
    """Its own caches show a change after up to a minute, so it is asked until then."""

    url = os.environ["EUREKA_URL"]
    app = SpringApp(f"dueline-test-{uuid.uuid4().hex[:12]}")
    app.port = 9024
    await app.register(url, "task1, task2")
    resolver = EurekaResolver(url)
    await resolver.start()
    try:
        [found] = await until(lambda: resolver.instances(app.name.upper(), fresh=True), within_s=90, every_s=1)
        assert (found.url, found.tasks, found.service) == ("http://127.0.0.1:9024", ("task1", "task2"), app.name)
        await until(resolver.services, lambda services: app.name in services, within_s=90, every_s=1)
        await app.leave()
        await until(lambda: resolver.instances(app.name, fresh=True), lambda found: not found, within_s=90, every_s=1)
    finally:
        await app.leave()
        await resolver.stop()
