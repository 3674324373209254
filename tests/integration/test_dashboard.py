"""How the dashboard is served, and its login: a real server, and requests as a browser would send them."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest

from dueline.config.load import load
from dueline.engine.tokens import TokenSpec
from dueline.rights import EVERYTHING, Right
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from dueline.server.dashboard import ui_files

from ..kit.fixtures import private_valkey as private_valkey
from ..kit.raw_http import Answer, connect
from ..kit.valkey import PrivateValkey

TOGETHER_BYTES = 200_000  # of all files, compressed
UI = Path(__file__).parents[2] / "ui"


class ServerKit(NamedTuple):
    """One server and its tokens by name."""

    app: App
    port: int

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{self.port}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        client = await connect(self.port)
        try:
            await client.send("\r\n".join((*lines, "", "")).encode() + body)
            return await client.answer(head_only=method == "HEAD")
        finally:
            client.close()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def token(self, *rights: Right) -> tuple[str, str]:
        """The id and the text of a new token."""
        made = await self.app.engine.tokens.make(TokenSpec("ann", rights, "default", ("*",)), EVERYTHING)
        return made.token.id, made.text

    async def login(self, token: str, **headers: str) -> Answer:
        sent = b'{"token": "%b"}' % token.encode()
        return await self.ask("POST", "/ui/login", sent, **({"origin": self.origin} | headers))


OpenServer = Callable[..., AbstractAsyncContextManager[ServerKit]]


@pytest.fixture
def open_server(private_valkey: PrivateValkey, request: pytest.FixtureRequest) -> OpenServer:
    prefix = f"d{crc32(request.node.name.encode())}"

    @asynccontextmanager
    async def opened(**flags: object) -> AsyncIterator[ServerKit]:
        named = {f"server.{name}": value for name, value in flags.items()}
        settings = load({"store.url": private_valkey.url, "store.prefix": prefix} | named, {}, None)
        app = App(settings, ExternalStore(private_valkey.url))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await app.listen([listener])
            await app.open()
            try:
                yield ServerKit(app, listener.getsockname()[1])
            finally:
                await app.stop(asyncio.Event())

    return opened


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def test_a_browser_is_led_to_the_dashboard_and_a_program_learns_what_this_is(open_server: OpenServer) -> None:
    async with open_server() as kit:
        browser = await kit.ask("GET", "/", accept="text/html,*/*;q=0.8")
        assert (browser.status, browser.headers["location"], browser.headers["vary"]) == (302, "ui/", "accept")
        program = await kit.ask("GET", "/", accept="*/*")
        assert (program.status, program.json()["name"], program.json()["dashboard"]) == (200, "dueline", "/ui/")
        assert (await kit.ask("GET", "/ui")).headers["location"] == "ui/"


async def test_a_request_with_a_body_to_the_root_belongs_to_the_protocol_that_uses_it(open_server: OpenServer) -> None:
    async with open_server() as kit:
        sent = b'{"command":"add","topic":"t","id":"a","delay":3600,"ttr":60,"body":"x"}'
        for method in ("POST", "GET"):
            answer = await kit.ask(method, "/", sent, accept="text/html")
            assert (answer.status, answer.json()["success"]) == (200, True)


async def test_every_file_is_cached_by_its_content_and_compressed(open_server: OpenServer) -> None:
    async with open_server() as kit:
        page = await kit.ask("GET", "/ui/")
        assert (page.status, page.headers["cache-control"]) == (200, "no-cache")
        assert page.body == ui_files()["index.html"]
        named = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', page.body.decode())
        assert {name.rpartition(".")[2] for name in named} == {"js", "css", "svg"}
        for name in named:
            answer = await kit.ask("GET", f"/ui/{name}", accept_encoding="gzip, br")
            assert gzip.decompress(answer.body) == ui_files()[name]
            assert "immutable" in answer.headers["cache-control"]
            again = await kit.ask("GET", f"/ui/{name}", accept_encoding="gzip", if_none_match=answer.headers["etag"])
            assert (again.status, again.body) == (304, b"")
            other = await kit.ask("GET", f"/ui/{name}", if_none_match=answer.headers["etag"])
            assert (other.status, other.body) == (200, ui_files()[name])
        assert (await kit.ask("GET", "/ui/assets/../../dashboard.py")).status == 404


async def test_every_file_forbids_frames_inline_code_and_other_sites(open_server: OpenServer) -> None:
    async with open_server() as kit:
        for name in ("", *(name for name in ui_files() if name != "index.html")):
            headers = (await kit.ask("GET", f"/ui/{name}")).headers
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert policy["default-src"] == "'none'"
            assert (policy["script-src"], policy["style-src"], policy["connect-src"]) == ("'self'",) * 3
            assert (policy["frame-ancestors"], policy["base-uri"]) == ("'none'", "'none'")
            assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert "unsafe" not in str(policy)


def test_the_files_are_small_and_name_no_other_host() -> None:
    files = ui_files()
    assert sum(len(gzip.compress(content, 9)) for content in files.values()) < TOGETHER_BYTES
    hosts = {found.decode() for content in files.values() for found in re.findall(rb"https?://[\w.-]+", content)}
    assert hosts <= {"http://www.w3.org", "https://example.com"}  # the names of SVG; an example in a form
    assert b"<script>" not in files["index.html"]
    assert b"style=" not in files["index.html"]


def test_every_text_of_the_page_is_there_in_chinese() -> None:
    known = set(re.findall(r'^  "((?:[^"\\]|\\.)*)":', (UI / "src" / "zh.ts").read_text(), re.MULTILINE))
    used: set[str] = set()
    for path in (UI / "src").rglob("*.ts*"):
        if path.name != "zh.ts":
            used |= set(re.findall(r'\bt\((?:[^"()]*\? )?"((?:[^"\\]|\\.)*)"', path.read_text()))
            used |= set(re.findall(r'\bt\([^"()]*\? "[^"]*" : "([^"]*)"', path.read_text()))
            used |= set(re.findall(r'\b(?:word|hint): "([^"]*)"', path.read_text()))
    assert len(used) > 200
    assert sorted(used - known) == []


async def test_the_dashboard_can_be_switched_off(open_server: OpenServer) -> None:
    async with open_server(ui=False) as kit:
        for path in ("/ui/", "/ui", "/ui/settings"):
            assert (await kit.ask("GET", path, accept="text/html")).status == 404
        root = await kit.ask("GET", "/", accept="text/html")
        assert (root.status, root.json()["dashboard"]) == (200, None)


async def test_the_page_learns_its_settings_before_a_login(open_server: OpenServer) -> None:
    flags = {"auth": "tokens", "ui_environment": "production", "ui_colour": "red", "ui_read_only": True}
    async with open_server(**flags) as kit:
        page_settings = (await kit.ask("GET", "/ui/settings")).json()
    assert page_settings == {
        "version": page_settings["version"],
        "auth": "tokens",
        "read_only": True,
        "environment": "production",
        "colour": "red",
    }


async def test_a_login_puts_the_token_into_a_cookie_that_no_script_and_no_other_site_gets(
    open_server: OpenServer,
) -> None:
    async with open_server(auth="tokens") as kit:
        _, token = await kit.token(Right.READ, Right.MANAGE)
        answer = await kit.login(token)
        assert (answer.status, answer.headers["cache-control"]) == (204, "no-store")
        assert re.fullmatch(
            rf"dueline-token={token}; Path=/; Max-Age=\d+; HttpOnly; SameSite=Strict", answer.headers["set-cookie"]
        )
        behind_tls = await kit.login(token, origin="https://queue.corp", sec_fetch_site="same-origin")
        assert behind_tls.headers["set-cookie"].startswith(f"__Host-dueline-token={token}; ")
        assert behind_tls.headers["set-cookie"].endswith("; Secure")
        for cookies in (cookie_of(answer), cookie_of(behind_tls), f"a=b; {cookie_of(answer)}; c=d"):
            info = await kit.ask("GET", "/v1/info", cookie=cookies)
            assert (info.status, info.json()["access"]["name"]) == (200, "ann")
            assert info.json()["access"]["rights"] == ["manage", "read"]
        gone = await kit.ask("POST", "/ui/logout", origin=kit.origin)
        assert (gone.status, cookie_of(gone)) == (204, "dueline-token=")
        assert "Max-Age=0" in gone.headers["set-cookie"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"token": "dl_0123456789ab_nobody"}', 401, "unauthorized"),
        (b'{"token": 1}', 400, "bad_json"),
        (b'{"token": "a", "more": 1}', 400, "bad_json"),
        (b"", 400, "bad_json"),
        (b'{"\xed": "a"}', 400, "bad_json"),
        (b'{"token": "\xff"}', 400, "bad_json"),
        (b'{"token": "' + b"a" * 5000 + b'"}', 413, "body_too_large"),
    ],
)
async def test_a_login_without_a_valid_token_is_refused(
    body: bytes, status: int, code: str, open_server: OpenServer
) -> None:
    async with open_server(auth="tokens") as kit:
        answer = await kit.ask("POST", "/ui/login", body, origin=kit.origin)
        assert (answer.status, answer.json()["error"]["code"]) == (status, code)
        assert "set-cookie" not in answer.headers


async def test_a_token_that_may_not_read_cannot_log_in(open_server: OpenServer) -> None:
    async with open_server(auth="tokens") as kit:
        _, token = await kit.token(Right.SEND)
        answer = await kit.login(token)
        assert (answer.status, "set-cookie" in answer.headers) == (403, False)


async def test_a_server_without_tokens_has_no_login(open_server: OpenServer) -> None:
    async with open_server() as kit:
        assert (await kit.login("dl_a_b")).status == 404


async def test_revocation_ends_a_login(open_server: OpenServer) -> None:
    async with open_server(auth="tokens") as kit:
        id, token = await kit.token(Right.READ)
        cookie = cookie_of(await kit.login(token))
        assert (await kit.ask("GET", "/v1/info", cookie=cookie)).status == 200
        await kit.app.engine.tokens.revoke(id, EVERYTHING)
        assert (await kit.ask("GET", "/v1/info", cookie=cookie)).status == 401
        assert (await kit.login(token)).status == 401


PAUSE = ("POST", "/v1/topics/t/pause")


async def test_a_cookie_changes_something_only_for_a_page_of_this_server(open_server: OpenServer) -> None:
    async with open_server(auth="tokens") as kit:
        _, token = await kit.token(Right.READ, Right.MANAGE)
        cookie = cookie_of(await kit.login(token))
        own = {"origin": kit.origin}
        for headers in (own, own | {"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "same-origin"}):
            assert (await kit.ask(*PAUSE, cookie=cookie, **headers)).status == 200
        assert (await kit.ask(*PAUSE, cookie=cookie)).status == 401  # no browser is so silent
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:1"},
            {"origin": "http://127.0.0.1:1", "sec_fetch_site": "same-site"},
            {"sec_fetch_site": "cross-site"},
        ):
            assert (await kit.ask(*PAUSE, cookie=cookie, **headers)).status == 403
        assert (await kit.ask("GET", "/v1/info", cookie=cookie, sec_fetch_site="cross-site")).status == 403


async def test_a_cookie_counts_only_where_the_dashboard_calls_and_after_a_header(open_server: OpenServer) -> None:
    async with open_server(auth="tokens") as kit:
        _, token = await kit.token(Right.ADMIN)
        cookie = cookie_of(await kit.login(token))
        assert (await kit.ask("GET", "/metrics", cookie=cookie)).status == 401
        for other in ("Bearer dl_0123456789ab_nobody", "Basic YTpi"):
            assert (await kit.ask("GET", "/v1/info", cookie=cookie, authorization=other)).status == 401


async def test_a_read_only_dashboard_changes_nothing(open_server: OpenServer) -> None:
    async with open_server(auth="tokens", ui_read_only=True) as kit:
        _, token = await kit.token(Right.ADMIN)
        cookie = cookie_of(await kit.login(token))
        assert (await kit.ask("GET", "/v1/info", cookie=cookie)).status == 200
        assert (await kit.ask(*PAUSE, cookie=cookie, origin=kit.origin)).status == 401
        assert (await kit.ask(*PAUSE, authorization=f"Bearer {token}")).status == 200
