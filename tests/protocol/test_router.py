"""Which handler answers: one table from all dialects."""

from __future__ import annotations

import pytest

from dueline.dialects.http import PUBLIC, Request, Response, Route, TokenPlace, plain_error
from dueline.engine.errors import DuelineError, Loading
from dueline.rights import Right
from dueline.server.router import RECENT_BYTES, RECENT_TARGETS, Router


class Dialect:
    def __init__(self, name: str, *lines: tuple[str, str]) -> None:
        self.name = name
        self.lines = lines

    def routes(self) -> list[Route]:
        return [Route(method, pattern, self.answer, f"{method} {pattern}", *PUBLIC) for method, pattern in self.lines]

    def failed(self, request: Request, error: DuelineError) -> Response:
        return plain_error(418, error.code, f"{self.name} refuses")

    async def answer(self, request: Request) -> Response:
        return Response(200, self.name.encode())


@pytest.fixture
def router() -> Router:
    one = Dialect("one", ("GET", "/a"), ("POST", "/a/{x}/b"), ("GET", "/a/{x}/b/{y}"), ("GET", "/a/{x}"), ("*", "/"))
    two = Dialect(
        "two", ("POST", "/a"), ("GET", "/a/lit/b"), ("DELETE", "/a/{x}"), ("GET", "/r/{x}/{z*}"), ("GET", "/r/{x}/{y}")
    )
    return Router([one, two])


@pytest.mark.parametrize(
    ("method", "path", "name", "params"),
    [
        ("GET", "/a", "GET /a", ()),
        ("HEAD", "/a", "GET /a", ()),
        ("POST", "/a", "POST /a", ()),
        ("PUT", "/a", "method_not_allowed", ()),
        ("GET", "/a/1", "GET /a/{x}", ("1",)),
        ("DELETE", "/a/1", "DELETE /a/{x}", ("1",)),
        ("POST", "/a/1/b", "POST /a/{x}/b", ("1",)),
        ("POST", "/a/%E4%B8%AD%2F%25/b", "POST /a/{x}/b", ("中/%",)),
        ("GET", "/a/lit/b", "GET /a/lit/b", ()),
        ("GET", "/a/1/b/2", "GET /a/{x}/b/{y}", ("1", "2")),
        ("OPTIONS", "/", "* /", ()),
        ("GET", "/r/1/2", "GET /r/{x}/{y}", ("1", "2")),
        ("GET", "/r/1/2/%2F3//", "GET /r/{x}/{z*}", ("1", "2//3//")),
        ("GET", "/r/1//2", "GET /r/{x}/{z*}", ("1", "/2")),
        ("GET", "/r/1/", "no_route", ()),
        ("PUT", "/r/1/2/3", "method_not_allowed", ()),
        ("GET", "/a/", "no_route", ()),
        ("GET", "/a//b", "no_route", ()),
        ("GET", "//a", "no_route", ()),
        ("GET", "/a/1/c", "no_route", ()),
        ("GET", "/A", "no_route", ()),
        ("GET", "a", "no_route", ()),
        ("GET", "*", "no_route", ()),
    ],
)
def test_a_request_finds_its_route(router: Router, method: str, path: str, name: str, params: tuple[str, ...]) -> None:
    found = router.find(method, path)
    assert (found.route.name, found.params) == (name, params)
    again = router.locate(method.encode(), path.encode() + b"?q=1")
    assert (again[1:3], again[3].route.name, again[3].params) == ((path, "q=1"), name, params)
    for _ in range(2):  # the second time from memory
        located = router.locate(method.encode(), path.encode())
        assert (located[0], located[3].route.name, located[3].params) == (method, name, params)


def test_what_is_remembered_is_bounded(router: Router) -> None:
    for n in range(3 * RECENT_TARGETS):
        router.locate(b"GET", b"/a/%d" % n)
    assert len(router._recent) <= RECENT_TARGETS


def test_what_is_remembered_is_bounded_in_bytes(router: Router) -> None:
    for n in range(RECENT_TARGETS):
        router.locate(b"GET", b"/a/%d" % n + b"x" * 8000)
    assert 0 < sum(len(url) for _, url in router._recent) <= RECENT_BYTES


def test_two_dialects_cannot_claim_one_route() -> None:
    with pytest.raises(ValueError, match=r"GET /a/{y} is claimed by both GET /a/{x} and GET /a/{y}"):
        Router([Dialect("one", ("GET", "/a/{x}")), Dialect("two", ("GET", "/a/{y}"))])


async def test_a_refusal_speaks_the_words_of_the_routes_dialect(router: Router) -> None:
    found = router.find("GET", "/a/%FF")
    request = Request("GET", "/a/%FF", "", {}, b"")
    response = await router.respond(found, request)
    assert (response.status, b"one refuses" in response.body) == (418, True)


async def test_the_log_names_the_request_that_met_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Dialect):
        async def answer(self, request: Request) -> Response:
            raise LookupError("a bug")

    router = Router([Broken("one", ("POST", "/a/{topic}/jobs/{id}"))])
    trace = "a" * 32
    headers = {"x-request-id": "r" * 200, "traceparent": f"00-{trace}-{'b' * 16}-01"}
    found = router.find("POST", "/a/orders/jobs/7")
    path = "/a/orders/jobs/7"
    for own in (headers, {"traceparent": "not one"}):
        answer = await router.respond(found, Request("POST", path, "", own, b"", params=found.params))
        assert answer.status == 500
    name = {"route": "POST /a/{topic}/jobs/{id}", "topic": "orders", "id": "7"}
    events = [record.msg for record in caplog.records]
    assert [(event.text, event.fields) for event in events] == [
        ("unexpected error in a handler", {**name, "request_id": "r" * 128, "trace_id": trace}),
        ("unexpected error in a handler", name),
    ]


async def test_a_guard_is_asked_before_the_handler() -> None:
    asked: list[str] = []

    def guard(request: Request, route: Route) -> None:
        asked.append(route.name)
        if request.headers.get("x-ready") is None:
            raise Loading

    router = Router([Dialect("one", ("GET", "/a"))], guard=guard)
    found = router.find("GET", "/a")
    refused = await router.respond(found, Request("GET", "/a", "", {}, b""))
    taken = await router.respond(found, Request("GET", "/a", "", {"x-ready": "yes"}, b""))
    assert (refused.status, taken.status, asked) == (418, 200, ["GET /a", "GET /a"])


class Speller(Dialect):
    """Redirects from doubled slashes."""

    namespace = "s"

    def respelled(self, path: str) -> str:
        return path.replace("//", "/")

    def moved(self, request: Request, path: str) -> Response:
        return Response(301, headers=(("location", path),))


async def test_another_spelling_is_answered_directly_if_the_client_knows_a_longer_path() -> None:
    router = Router([Speller("s", ("GET", "/a"))])
    request = Request("GET", "//a", "", {}, b"")
    assert (await router.respond(router.find("GET", "//a"), request)).status == 301
    direct = router.find("GET", "//a", redirects=False)
    assert (await router.respond(direct, request)).body == b"s"


def test_a_dialect_may_accept_tokens_in_fewer_places_than_its_routes_say() -> None:
    one, two = Dialect("one", ("GET", "/a")), Dialect("two", ("GET", "/b"))
    for dialect in (one, two):
        dialect.routes = lambda made=dialect: [  # type: ignore[method-assign]
            Route("GET", f"/{made.name}", made.answer, "x", Right.SEND, TokenPlace.ANYWHERE),
            Route("GET", f"/{made.name}/public", made.answer, "y", *PUBLIC),
        ]
    router = Router([one, two], token_places={one: TokenPlace.HEADER})
    places = {route.pattern: route.token for route in router.routes()}
    assert places == {
        "/one": TokenPlace.HEADER,
        "/one/public": TokenPlace.NOWHERE,
        "/two": TokenPlace.ANYWHERE,
        "/two/public": TokenPlace.NOWHERE,
    }
