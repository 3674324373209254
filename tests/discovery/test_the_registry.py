"""The registry of the test kit, as py-eureka-client sees it: what we test against is what its clients know."""

from __future__ import annotations

import logging
from urllib.error import HTTPError
from xml.etree.ElementTree import ParseError

import pytest
from py_eureka_client import eureka_basic

from tests.kit.eureka import Registry
from tests.kit.spring_app import SpringApp

logging.getLogger("py_eureka_client").setLevel(logging.CRITICAL)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def registered(registry: Registry, name: str = "billing", tasks: str | None = None) -> SpringApp:
    app = SpringApp(name)
    app.port = 9024
    await app.register(registry.url, tasks, duration_s=25)
    return app


async def test_an_instance_registers_renews_and_leaves() -> None:
    clock = Clock()
    registry = Registry(clock)
    await registry.start()
    app = await registered(registry)
    id = "127.0.0.1:billing:9024"
    assert registry.up() == [id]
    clock.now_s += 20
    await app.renew()
    clock.now_s += 20
    assert registry.up() == [id]
    await app.leave()
    assert (registry.up(), registry.evicted) == ([], [])
    await registry.stop()


async def test_an_instance_that_does_not_renew_is_evicted_and_registers_again_with_its_next_heartbeat() -> None:
    clock = Clock()
    registry = Registry(clock)
    await registry.start()
    app = await registered(registry)
    clock.now_s += 25.1
    assert (registry.up(), registry.evicted) == ([], ["127.0.0.1:billing:9024"])
    await app.renew()
    assert registry.up() == ["127.0.0.1:billing:9024"]
    await registry.stop()


async def test_an_instance_that_is_taken_out_of_service_is_still_there_but_not_up() -> None:
    registry = Registry()
    await registry.start()
    app = await registered(registry)
    await app.set_status("OUT_OF_SERVICE")
    found = await eureka_basic.get_application(registry.url, "BILLING")
    assert ([one.status for one in found.instances], registry.up()) == (["OUT_OF_SERVICE"], [])
    await registry.stop()


async def test_apps_vips_and_instances_are_found_by_their_names_in_xml() -> None:
    registry = Registry()
    await registry.start()
    await registered(registry, "billing")
    await registered(registry, "mail")
    everything = await eureka_basic.get_applications(registry.url)
    one = await eureka_basic.get_application(registry.url, "BILLING")
    vip = await eureka_basic.get_vip(registry.url, "mail")
    instance = await eureka_basic.get_app_instance(registry.url, "MAIL", "127.0.0.1:mail:9024")
    assert sorted(app.name for app in everything.applications) == ["BILLING", "MAIL"]
    assert [(i.hostName, i.port.port, i.port.enabled, i.status) for i in one.instances] == [
        ("127.0.0.1", 9024, True, "UP")
    ]
    assert [app.name for app in vip.applications] == ["MAIL"]
    assert (instance.app, instance.securePort.enabled) == ("MAIL", False)
    for nobody in (
        eureka_basic.get_application(registry.url, "billing"),
        eureka_basic.get_vip(registry.url, "MAIL"),
        eureka_basic.get_app_instance(registry.url, "MAIL", "other"),
    ):
        with pytest.raises(HTTPError) as refused:
            await nobody
        assert refused.value.code == 404
    await registry.stop()


async def test_the_delta_tells_what_changed_with_a_hash_over_all() -> None:
    registry = Registry()
    await registry.start()
    await registered(registry, "billing")
    mail = await registered(registry, "mail")
    before = await eureka_basic.get_delta(registry.url)
    await mail.leave()
    after = await eureka_basic.get_delta(registry.url)
    actions = [(i.app, i.actionType, i.status) for app in after.applications for i in app.instances]
    assert (before.appsHashcode, after.appsHashcode) == ("UP_2_", "UP_1_")
    assert int(after.versionsDelta) > int(before.versionsDelta)
    assert actions == [
        ("BILLING", "ADDED", "UP"),
        ("MAIL", "DELETED", "DOWN"),
    ]
    await registry.stop()


async def test_the_metadata_of_the_spring_queue_cannot_be_read_as_xml() -> None:
    """Why our resolver asks for JSON: this name is a prefix without a namespace."""

    registry = Registry()
    await registry.start()
    await registered(registry, "billing", "task1, task2")
    with pytest.raises(ParseError, match="unbound prefix"):
        await eureka_basic.get_application(registry.url, "BILLING")
    await registry.stop()
