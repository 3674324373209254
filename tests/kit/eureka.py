"""A Eureka registry on loopback, small but real: it registers, renews, expires leases, and answers Eureka's REST.

    registry = Registry()                 # or Registry(time_s=...), where the test chooses the time
    await registry.start()                # registry.url is what `discovery.eureka.url` and clients are given
    registry.fault = Fault.SILENT         # from now on nobody gets an answer
    registry.asked                        # what was asked: (method, path below /eureka), in order

Answers are JSON for whoever accepts it, else XML, as there. A lease that was not renewed in time is found out at the
next request, whatever that is.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from aiohttp import BasicAuth, web

DELTA_S = 180.0  # how long a change stands in apps/delta


class Fault(Enum):
    SILENT = "takes the request and never answers"
    BROKEN = "answers 500"
    GARBAGE = "answers what no registry says"


class Lease:
    """One instance: its registration, and until when that is valid."""

    def __init__(self, registration: dict[str, Any], now_s: float) -> None:
        self.registration = registration
        self.duration_s = float(registration.get("leaseInfo", {}).get("durationInSecs", 90))
        self.renewed_s = now_s
        self.override: str | None = None

    def shown(self, action: str) -> dict[str, Any]:
        found = copy.deepcopy(self.registration)
        found["actionType"] = action
        if self.override is not None:
            found["status"] = found["overriddenstatus"] = self.override
        return found


class Registry:
    """See the head of this module."""

    def __init__(self, time_s: Callable[[], float] = time.monotonic) -> None:
        self.fault: Fault | None = None
        self.asked: list[tuple[str, str]] = []
        self.password: str | None = None  # "user:password", which everybody must then give
        self.was_asked = asyncio.Event()  # since the test cleared it
        self.evicted: list[str] = []
        self._time_s = time_s
        self._leases: dict[tuple[str, str], Lease] = {}  # (APP, instance id), in the order of registration
        self._changes: list[tuple[float, str, dict[str, Any]]] = []
        self._version = 0
        self._runner: web.AppRunner | None = None
        self._hanging = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/eureka"

    async def looked_up(self, app: str, times: int) -> None:
        """Wait until an application was asked for this often in all."""
        while self.asked.count(("GET", f"apps/{app.upper()}")) < times:
            self.was_asked.clear()
            await self.was_asked.wait()

    def up(self) -> list[str]:
        """The ids of the instances that are there."""
        self._evict()
        return [id for (_, id), lease in self._leases.items() if lease.shown("")["status"] == "UP"]

    async def start(self) -> None:
        """Listen, at the port it had before if it had one."""
        app = web.Application(middlewares=[self._first])
        app.add_routes(
            [
                web.get("/eureka/apps", self._apps),
                web.get("/eureka/apps/", self._apps),
                web.get("/eureka/apps/delta", self._delta),
                web.get("/eureka/apps/{app}", self._app),
                web.post("/eureka/apps/{app}", self._register),
                web.get("/eureka/apps/{app}/{id}", self._instance),
                web.put("/eureka/apps/{app}/{id}", self._renew),
                web.delete("/eureka/apps/{app}/{id}", self._cancel),
                web.put("/eureka/apps/{app}/{id}/status", self._set_status),
                web.delete("/eureka/apps/{app}/{id}/status", self._unset_status),
                web.put("/eureka/apps/{app}/{id}/metadata", self._set_metadata),
                web.get("/eureka/instances/{id}", self._anywhere),
                web.get("/eureka/vips/{vip}", self._vip),
                web.get("/eureka/svips/{vip}", self._vip),
            ]
        )
        self._hanging.clear()
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self._hanging.set()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @web.middleware
    async def _first(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append((request.method, request.path.removeprefix("/eureka/")))
        self.was_asked.set()
        if (
            self.password is not None
            and request.headers.get("Authorization") != BasicAuth(*self.password.split(":")).encode()
        ):
            return web.Response(status=401)
        if self.fault is Fault.SILENT:
            await self._hanging.wait()
        if self.fault is not None:
            return web.Response(status=200 if self.fault is Fault.GARBAGE else 500, text="<html>no</html>")
        self._evict()
        return await handler(request)

    # -- changes

    async def _register(self, request: web.Request) -> web.Response:
        registration = (await request.json())["instance"]
        missing = [name for name in ("app", "hostName", "ipAddr", "dataCenterInfo") if not registration.get(name)]
        if missing:
            return web.Response(status=400, text=f"Missing {missing[0]}")
        key = (request.match_info["app"].upper(), registration.get("instanceId") or registration["hostName"])
        lease = Lease({**registration, "app": key[0], "instanceId": key[1]}, self._time_s())
        self._changed("MODIFIED" if key in self._leases else "ADDED", lease)
        self._leases[key] = lease
        return web.Response(status=204)

    async def _renew(self, request: web.Request) -> web.Response:
        lease = self._found(request)
        lease.renewed_s = self._time_s()
        return web.Response()

    async def _cancel(self, request: web.Request) -> web.Response:
        self._changed("DELETED", self._found(request))
        del self._leases[_key(request)]
        return web.Response()

    async def _set_status(self, request: web.Request) -> web.Response:
        lease = self._found(request)
        lease.override = request.query["value"]
        self._changed("MODIFIED", lease)
        return web.Response()

    async def _unset_status(self, request: web.Request) -> web.Response:
        lease = self._found(request)
        lease.override = None
        self._changed("MODIFIED", lease)
        return web.Response()

    async def _set_metadata(self, request: web.Request) -> web.Response:
        lease = self._found(request)
        lease.registration.setdefault("metadata", {}).update(request.query)
        self._changed("MODIFIED", lease)
        return web.Response()

    def _changed(self, action: str, lease: Lease) -> None:
        self._version += 1
        self._changes.append((self._time_s(), action, lease.shown(action)))

    def _evict(self) -> None:
        now_s = self._time_s()
        for key, lease in list(self._leases.items()):
            if now_s - lease.renewed_s > lease.duration_s:
                del self._leases[key]
                self.evicted.append(key[1])
                self._changed("DELETED", lease)
        self._changes = [change for change in self._changes if now_s - change[0] <= DELTA_S]

    # -- answers

    async def _apps(self, request: web.Request) -> web.Response:
        return self._applications_response(request, self._shown())

    async def _delta(self, request: web.Request) -> web.Response:
        return self._applications_response(request, (shown for _, _, shown in self._changes))

    async def _app(self, request: web.Request) -> web.Response:
        # The registry keeps names in capitals and looks for them as they are asked for, letter by letter.
        found = [one for one in self._shown() if one["app"] == request.match_info["app"]]
        if not found:
            return web.Response(status=404)
        if _wants_json(request):
            return web.json_response({"application": {"name": found[0]["app"], "instance": found}})
        return _xml(_application_xml(found[0]["app"], found))

    async def _vip(self, request: web.Request) -> web.Response:
        name = "secureVipAddress" if "/svips/" in request.path else "vipAddress"
        vip = request.match_info["vip"]
        found = [one for one in self._shown() if vip in str(one.get(name, "")).split(",")]
        return self._applications_response(request, found) if found else web.Response(status=404)

    async def _instance(self, request: web.Request) -> web.Response:
        return self._instance_response(request, self._found(request))

    async def _anywhere(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        lease = next((lease for key, lease in self._leases.items() if key[1] == id), None)
        return web.Response(status=404) if lease is None else self._instance_response(request, lease)

    def _found(self, request: web.Request) -> Lease:
        lease = self._leases.get(_key(request))
        if lease is None:
            raise web.HTTPNotFound
        return lease

    def _shown(self) -> list[dict[str, Any]]:
        return [lease.shown("ADDED") for lease in self._leases.values()]

    def _hash(self) -> str:
        counts: dict[str, int] = {}
        for one in self._shown():
            counts[one["status"]] = counts.get(one["status"], 0) + 1
        return "".join(f"{status}_{counts[status]}_" for status in sorted(counts))

    def _applications_response(self, request: web.Request, instances: Iterable[dict[str, Any]]) -> web.Response:
        apps: dict[str, list[dict[str, Any]]] = {}
        for one in instances:
            apps.setdefault(one["app"], []).append(one)
        if _wants_json(request):
            listed = [{"name": name, "instance": some} for name, some in apps.items()]
            delta = {"versions__delta": str(self._version), "apps__hashcode": self._hash(), "application": listed}
            return web.json_response({"applications": delta})
        head = f"<versions__delta>{self._version}</versions__delta><apps__hashcode>{self._hash()}</apps__hashcode>"
        inside = "".join(_application_xml(name, some) for name, some in apps.items())
        return _xml(f"<applications>{head}{inside}</applications>")

    def _instance_response(self, request: web.Request, lease: Lease) -> web.Response:
        shown = lease.shown("ADDED")
        return web.json_response({"instance": shown}) if _wants_json(request) else _xml(_instance_xml(shown))


def _key(request: web.Request) -> tuple[str, str]:
    return (request.match_info["app"], request.match_info["id"])


def _wants_json(request: web.Request) -> bool:
    return "json" in request.headers.get("Accept", "")


def _xml(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/xml")


def _application_xml(name: str, instances: list[dict[str, Any]]) -> str:
    return f"<application><name>{escape(name)}</name>{''.join(map(_instance_xml, instances))}</application>"


def _instance_xml(shown: dict[str, Any]) -> str:
    return f"<instance>{''.join(_element(name, value) for name, value in shown.items())}</instance>"


def _element(name: str, value: Any) -> str:
    """As there: a name stands as it is, also one that XML readers take for a prefix (delay-queue:task)."""
    if isinstance(value, dict) and "$" in value:
        return f"<{name} enabled={quoteattr(value['@enabled'])}>{value['$']}</{name}>"
    if isinstance(value, dict):
        kind = f" class={quoteattr(value['@class'])}" if "@class" in value else ""
        inside = "".join(_element(key, one) for key, one in value.items() if key != "@class")
        return f"<{name}{kind}>{inside}</{name}>"
    return f"<{name}>{escape(str(value))}</{name}>"
