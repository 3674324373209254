"""Which requests of a browser are answered, judged by the headers that browsers really send."""

from __future__ import annotations

import pytest

from dueline.config.settings import Server, Settings
from dueline.dialects.http import PUBLIC, Browser, Request, Response, Route
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from dueline.server.asgi import AsgiApp
from dueline.server.browser import MAX_KNOWN_HOSTS, BrowserRules
from dueline.server.router import Router

from .kit import OpenKit, Probe, assert_error
from .test_asgi import Exchange

HERE = "127.0.0.1:9277"
CHROME = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/140", "accept-language": "en"}
NAVIGATION = {**CHROME, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
IMAGE = {**CHROME, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
SCRIPT = {**CHROME, "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}


async def _handler(_request: Request) -> Response:
    return Response(200)


PLAIN = Route("*", "/pop", _handler, "plain", *PUBLIC)
PAGE = Route("GET", "/docs", _handler, "page", *PUBLIC, browser=Browser.ANY_LINK)
OFFLINE = Route("*", "/offline", _handler, "offline", *PUBLIC, browser=Browser.REFUSED)


def refused(rules: BrowserRules, route: Route = PLAIN, host: str | None = HERE, **headers: str) -> str | None:
    """The message of a refusal, or None."""
    given = {} if host is None else {"host": host}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    answer = rules.refusal(route, {name.encode(): value.encode("latin-1") for name, value in given.items()})
    if answer is None:
        return None
    assert answer.status == 403
    return answer.body.decode()


@pytest.mark.parametrize(
    "host",
    [None, "", HERE, "127.0.0.1", "127.9.9.9:1", "localhost", "LOCALHOST:9277", "localhost.", "app.localhost:80",
     "[::1]:9277", "[::1]", "[fe80::1%25eth0]:9277", "10.0.0.5:9277", "8.8.8.8"],
)  # fmt: skip
def test_loopback_names_addresses_and_a_missing_host_are_answered(host: str | None) -> None:
    assert refused(BrowserRules(), host=host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9277", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost", "queue",
     "2130706433", "0x7f.1", "127.1", "x@127.0.0.1", "[evil]", "[::1", "127.0.0.1:80:90", "a b", "\xe9",
     "a." * 10_000, "localhost" * 3000],
)  # fmt: skip
def test_any_other_name_is_refused_and_the_refusal_names_the_setting(host: str) -> None:
    rules = BrowserRules()
    for _ in range(2):
        reason = refused(rules, host=host)
        assert reason is not None
        assert "server.hosts" in reason


def test_configured_names_are_answered() -> None:
    rules = BrowserRules(("Queue.corp", "*.shop.example"))
    for host in ("queue.corp", "QUEUE.CORP:9277", "queue.corp.", "a.shop.example", "a.b.shop.example:1", HERE):
        assert refused(rules, host=host) is None, host
    for host in ("corp", "other.corp", "shop.example", "evilshop.example", "queue.corp.evil.example"):
        assert refused(rules, host=host) is not None, host


def test_beyond_loopback_the_host_is_judged_only_when_names_are_configured() -> None:
    assert refused(BrowserRules.of(Server(), loopback=True), host="queue") is not None
    assert refused(BrowserRules.of(Server(), loopback=False), host="queue") is None
    named = BrowserRules.of(Server(hosts=("queue",)), loopback=False)
    assert (refused(named, host="queue"), refused(named, host="10.0.0.5")) == (None, None)
    assert refused(named, host="evil.example") is not None
    assert refused(BrowserRules.mounted(Server(hosts=("queue",))), host="evil.example") is None


def test_each_listener_of_a_server_has_its_own_rules() -> None:
    server = Server(listen="0.0.0.0:9277", insecure=True)
    app = App(Settings(server=server), ExternalStore("unix:///nowhere"))
    [front] = app.fronts
    assert front.browser_rules is not None
    assert refused(front.browser_rules, host="queue") is None
    assert refused(front.browser_rules, host="queue", origin="http://evil.example") is not None
    [front] = App(Settings(), ExternalStore("unix:///nowhere")).fronts
    assert front.browser_rules is not None
    assert refused(front.browser_rules, host="queue") is not None


def test_what_is_remembered_of_hosts_is_bounded() -> None:
    rules = BrowserRules()
    for number in range(3 * MAX_KNOWN_HOSTS):
        assert refused(rules, host=f"10.0.{number // 256}.{number % 256}") is None
    assert len(rules._known_hosts) <= MAX_KNOWN_HOSTS


FOREIGN = {
    "a page of another front_kit": {**SCRIPT, "origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "its form": {**NAVIGATION, "origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "its link": {**NAVIGATION, "sec-fetch-site": "cross-site"},
    "its image": {**IMAGE, "sec-fetch-site": "cross-site"},
    "another port of this machine": {**SCRIPT, "origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-site"},
    "an image there": {**IMAGE, "sec-fetch-site": "same-site"},
    "a sandboxed frame": {**SCRIPT, "origin": "null", "sec-fetch-site": "cross-site"},
    "a file": {"origin": "null"},
    "an old browser": {"origin": "http://evil.example"},
    "an old browser over another scheme": {"origin": "ftp://127.0.0.1:9277"},
    "an extension": {"origin": "chrome-extension://abcdef", "sec-fetch-site": "none"},
    "a word that no browser sends": {"sec-fetch-site": "same-origin, cross-site"},
}
OWN = {
    "a program": {},
    "Node's fetch": {"sec-fetch-mode": "cors", "accept-language": "*", "user-agent": "node"},
    "the user's address bar": {**NAVIGATION, "sec-fetch-site": "none"},
    "our own page": {**SCRIPT, "origin": f"http://{HERE}", "sec-fetch-site": "same-origin"},
    "our own page, a GET": {**SCRIPT, "sec-fetch-site": "same-origin"},
    "our own page in an old browser": {**CHROME, "origin": f"http://{HERE}"},
    "our own page behind TLS": {**CHROME, "origin": f"https://{HERE}"},
    "our own page behind a proxy": {**SCRIPT, "origin": "https://queue.corp", "sec-fetch-site": "same-origin"},
}


@pytest.mark.parametrize("who", FOREIGN)
def test_what_comes_from_elsewhere_is_refused_and_the_refusal_names_the_setting(who: str) -> None:
    for rules in (BrowserRules(), BrowserRules(None), BrowserRules.mounted(Server())):
        reason = refused(rules, **FOREIGN[who])
        assert reason is not None
        assert "server.origins" in reason


@pytest.mark.parametrize("who", OWN)
def test_programs_and_our_own_pages_are_answered(who: str) -> None:
    assert refused(BrowserRules(), **OWN[who]) is None


def test_a_missing_host_makes_no_origin_ours() -> None:
    assert refused(BrowserRules(), host=None, origin="http://") is not None
    assert refused(BrowserRules(), host="", origin="http://") is not None


def test_configured_origins_are_answered_from_any_site() -> None:
    rules = BrowserRules(origins=("https://Shop.example",))
    for site in ("cross-site", "same-site"):
        assert refused(rules, origin="https://shop.example", sec_fetch_site=site) is None
    assert refused(rules, origin="https://shop.example.evil", sec_fetch_site="cross-site") is not None


def test_a_link_from_anywhere_leads_to_a_page_but_no_frame_shows_it() -> None:
    assert refused(BrowserRules(), PAGE, **FOREIGN["its link"]) is None
    assert refused(BrowserRules(), PAGE, **{**FOREIGN["its link"], "sec-fetch-dest": "iframe"}) is not None
    assert refused(BrowserRules(), PAGE, **FOREIGN["its form"]) is not None
    assert refused(BrowserRules(), PAGE, host="evil.example", **FOREIGN["its link"]) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "none", "sec-fetch-dest": "document"},
        {**SCRIPT, "sec-fetch-site": "same-origin"},
        {"origin": f"http://{HERE}"},
        {"referer": "http://evil.example/"},
        CHROME,  # an <img> on a page, over plain HTTP to an address that is not loopback
    ],
)
def test_no_browser_reaches_a_route_that_changes_something_on_a_get(headers: dict[str, str]) -> None:
    assert refused(BrowserRules(), OFFLINE, **headers) is not None


@pytest.mark.parametrize(
    "headers",
    [{}, {"user-agent": "curl/8"}, {"user-agent": "kube-probe/1.31"}, OWN["Node's fetch"],
     {"user-agent": "Mozilla/5.0 (Windows NT; en-US) WindowsPowerShell/5.1"}],
)  # fmt: skip
def test_programs_reach_it(headers: dict[str, str]) -> None:
    assert refused(BrowserRules(), OFFLINE, **headers) is None


async def test_a_refused_request_is_not_read_on_and_the_others_are_served(open_kit: OpenKit) -> None:
    post = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: 100000\r\n\r\n"

    async with open_kit(browser_rules=BrowserRules()) as front_kit:
        client = await front_kit.client()
        assert_error(await client.ask(post), 403, "forbidden")
        await client.closed()
        upgrade = post.replace(b"Origin", b"Connection: Upgrade\r\nUpgrade: h2c\r\nOrigin").replace(b"100000", b"0")
        assert_error(await (await front_kit.client()).ask(upgrade), 403, "forbidden")
        for version in (b"1.0", b"1.1"):
            no_host = await (await front_kit.client()).ask(b"GET /echo HTTP/%s\r\n\r\n" % version)
            assert no_host.status == 200
        assert [request.method for request in front_kit.probe.seen] == ["GET", "GET"]
        assert ("echo", "POST", 403) in front_kit.answered


@pytest.mark.parametrize(("headers", "status"), [({}, 200), (OWN["our own page"], 200), (FOREIGN["a file"], 403)])
async def test_a_mounted_application_judges_the_origin_and_not_the_host(headers: dict[str, str], status: int) -> None:

    app = AsgiApp(Router([Probe()]), browser_rules=BrowserRules.mounted(Server()))
    exchange = Exchange("POST", "/echo", [b"x"], {"host": "any.example", **headers})
    await app(exchange.scope, exchange.messages.get, exchange.send)
    assert exchange.answer().status == status
