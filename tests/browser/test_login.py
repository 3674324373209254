"""The login of a server with tokens: what it shows, what it hides, and how it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from dueline import Client
from dueline.testing.process import DUELINE

from ..integration.serve_kit import served
from .conftest import OpenView
from .kit import View
from .test_actions import copied, run


class Guarded:
    """A server with tokens. `admin` is a client that may do everything."""

    def __init__(self, url: str, data: Path, is_read_only: bool) -> None:
        self.url = url
        self.is_read_only = is_read_only
        command = [
            *DUELINE,
            "token",
            "create",
            "root",
            "--right",
            "admin",
            "--all-namespaces",
            "--url",
            f"embedded:{data}",
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.token = next(word for word in made.split() if word.startswith("dl_"))
        self.admin = Client(url, token=self.token)

    def made(self, *rights: str) -> tuple[str, str]:
        made = self.admin.create_token("ann", list(rights), expires="1h")
        return made.id, made.token


@pytest.fixture(scope="module", params=[False, True], ids=["", "read-only"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("login") / "data"
    variables = {"DUELINE_SERVER__AUTH": "tokens", "DUELINE_SERVER__UI_READ_ONLY": "true" if request.param else "false"}
    with served(data, **variables) as url:
        server = Guarded(url, data, request.param)
        server.admin.send("emails", 1, id="a", delay="1h")
        server.admin.set_push("invoices", service="billing", paused=True)
        yield server
        server.admin.close()


async def log_in(view: View, token: str) -> None:
    view.refusals = (401, 403)
    await view.open("topics/emails")
    await view.page.get_by_label("Token").fill(token)
    await view.button("Log in").click()


async def test_a_person_logs_in_sees_what_the_token_allows_and_logs_out(open_view: OpenView, guarded: Guarded) -> None:
    _, token = guarded.made("read", "manage")
    async with open_view(guarded.url) as view:
        await log_in(view, "dl_0123456789ab_nobody")
        await expect(view.page.get_by_role("alert")).to_contain_text("The token is not valid.")
        await view.page.get_by_label("Token").fill(token)
        await view.button("Log in").click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("emails")  # the view that was asked for
        await expect(view.page.locator("tbody tr").first).to_be_visible()  # all of it is there
        await expect(view.text("read only")).to_have_count(1 if guarded.is_read_only else 0)
        await expect(view.button("Pause")).to_have_count(0 if guarded.is_read_only else 1)
        await expect(view.button("Send a job")).to_have_count(0)
        await expect(view.page.get_by_role("link", name="Access")).to_have_count(0)
        assert await view.page.evaluate("document.cookie") == ""
        [cookie] = await view.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        await view.button("Log out").click()
        await expect(view.page.get_by_label("Token")).to_be_visible()
        assert await view.page.context.cookies() == []


async def test_whoever_has_the_right_sees_push_targets_and_nobody_else(open_view: OpenView, guarded: Guarded) -> None:
    for right, is_seen in (("push", 1), ("send", 0)):
        async with open_view(guarded.url) as view:
            await log_in(view, guarded.made("read", right)[1])
            await expect(view.page.get_by_role("heading", level=1)).to_have_text("emails")
            await view.open("push")
            await expect(view.page.get_by_role("cell", name="billing")).to_have_count(is_seen)
            await expect(view.text("Push targets need the right push.")).to_have_count(1 - is_seen)
            await expect(view.page.get_by_role("alert")).to_have_count(0)
            await view.open("topics/invoices/push")
            await expect(view.page.get_by_role("definition").filter(has_text="billing")).to_have_count(is_seen)
            await expect(view.button("Resume")).to_have_count(is_seen if not guarded.is_read_only else 0)


async def test_a_job_is_copied_for_a_server_with_tokens(open_view: OpenView, guarded: Guarded) -> None:
    guarded.admin.set_topic("copies", on_conflict="replace")
    guarded.admin.send("copies", {"a": 1}, id="a", delay="1h")
    async with open_view(guarded.url, permissions=["clipboard-read", "clipboard-write"]) as view:
        await log_in(view, guarded.token)
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("emails")
        await view.open("topics/copies/jobs/a")
        for name, runs in (("Copy as curl", ("bash", "-c")), ("Copy as Python", (sys.executable, "-c"))):
            text = await copied(view, name)
            assert "dl_" not in text
            await run(*runs, text, DUELINE_TOKEN=guarded.token)
            delay_ms = guarded.admin.get("copies", "a").due_at_ms - time.time() * 1000
            assert delay_ms < 120_000
            guarded.admin.reschedule("copies", "a", delay="1h")


async def test_a_revoked_token_ends_the_login(open_view: OpenView, guarded: Guarded) -> None:
    id, token = guarded.made("read")
    async with open_view(guarded.url) as view:
        await log_in(view, token)
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("emails")
        guarded.admin.revoke_token(id)
        await expect(view.page.get_by_label("Token")).to_be_visible()


async def test_a_token_that_may_not_read_is_told_so(open_view: OpenView, guarded: Guarded) -> None:
    async with open_view(guarded.url) as view:
        await log_in(view, guarded.made("send")[1])
        await expect(view.page.get_by_role("alert")).to_contain_text("the right read")


async def test_an_administrator_makes_and_revokes_tokens_and_reads_the_audit_log(
    open_view: OpenView, guarded: Guarded
) -> None:
    async with open_view(guarded.url) as view:
        await log_in(view, guarded.token)
        await view.page.get_by_role("link", name="Access").click()
        if guarded.is_read_only:
            await expect(view.page.locator("tbody tr").first).to_be_visible()
            await expect(view.button("Make a token")).to_have_count(0)
            return
        await view.button("Make a token").first.click()
        await view.dialog.get_by_label("Name", exact=True).fill("night shift")
        await view.dialog.get_by_label("manage").check()
        await view.dialog.get_by_label("Topics").fill("billing-*, mails")
        await view.dialog.get_by_label("Valid in all namespaces").check()
        await view.dialog.get_by_role("button", name="Make a token").click()
        text = await view.page.locator("dialog pre").inner_text()
        with Client(guarded.url, token=text) as client:
            access = client.info().access
        assert (access.name, access.namespace) == ("night shift", None)
        assert (set(access.rights), access.topics) == ({"read", "manage"}, ("billing-*", "mails"))
        await view.dialog.get_by_role("button", name="Close").click()
        row = view.page.locator("tr", has_text="night shift")
        await row.get_by_role("button", name="Rotate").click()
        await view.dialog.get_by_role("button", name="Rotate").click()
        rotated = await view.page.locator("dialog pre").inner_text()
        assert rotated != text
        with Client(guarded.url, token=rotated) as client:
            assert client.info().access.name == "night shift"
        await view.dialog.get_by_role("button", name="Close").click()
        await row.get_by_role("button", name="Revoke").click()
        await view.dialog.get_by_role("button", name="Revoke").click()
        await expect(row).to_contain_text("revoked")
        await view.page.get_by_role("link", name="Audit log").click()
        await expect(view.page.locator("tbody tr").first).to_contain_text("revoke_token")
