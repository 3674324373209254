"""TLS of a server: what is refused at the start, how clients reach it, and certificates replaced while it runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from dueline import Client, Patience
from dueline.certificate_files import key_refusal
from dueline.server.certificate import not_after_s
from dueline.testing.process import DUELINE, free_port
from tests.kit.waiting import until, wait_until
from tools.faults.server_process import ServerProcess

from .serve_kit import refused_settings
from .test_serve import refused

SOON_S = 20.0


class Files:
    """A certificate and its key in a folder, signed by a private authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.cert, self.key, self.ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.trusting = ssl.create_default_context()
        self.authority.configure_trust(self.trusting)
        self.renew()

    def renew(self, not_after: datetime | None = None) -> bytes:
        """Put a new certificate in place, as certbot does: whole files, one after the other. Returns its DER bytes."""
        issued = self.authority.issue_cert("localhost", "127.0.0.1", not_after=not_after)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        self.replace(self.cert, chain)
        self.replace(self.key, issued.private_key_pem.bytes())
        return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())

    def replace(self, file: Path, content: bytes) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.chmod(0o600)
        fresh.replace(file)

    @property
    def env(self) -> dict[str, str]:
        return {"DUELINE_SERVER__TLS__CERT": str(self.cert), "DUELINE_SERVER__TLS__KEY": str(self.key)}

    def served_at(self, port: int) -> bytes:
        """The certificate that a new connection gets."""
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=SOON_S))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# --- refused at the start -----------------------------------------------------------------------------------------


def encrypted(files: Files) -> None:
    key = load_pem_private_key(files.key.read_bytes(), None)
    secret = BestAvailableEncryption(b"secret")
    files.replace(files.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))


def of_another(files: Files) -> None:
    files.replace(files.key, files.authority.issue_cert("localhost").private_key_pem.bytes())


BROKEN: dict[str, tuple[Callable[[Files], object], str]] = {
    "no certificate": (lambda files: files.cert.unlink(), "server.tls.cert: {cert}: No such file or directory"),
    "no key": (lambda files: files.key.unlink(), "server.tls.key: {key}: No such file or directory"),
    "not a certificate": (
        lambda files: files.replace(files.cert, b"hello"),
        "server.tls.cert: {cert} is not a certificate in PEM format",
    ),
    "half a certificate": (
        lambda files: files.replace(files.cert, files.cert.read_bytes()[:300]),
        "server.tls.cert: {cert} is not a certificate in PEM format",
    ),
    "not a key": (
        lambda files: files.replace(files.key, b"hello"),
        "server.tls.key: {key} is not a private key in PEM format",
    ),
    "another key": (of_another, "server.tls.key: {key} is not the key of the certificate {cert}"),
    "an encrypted key": (encrypted, "server.tls.key: {key} is encrypted. Decrypt it: openssl pkey"),
    "a key for all": (
        lambda files: files.key.chmod(0o644),
        "server.tls.key: {key} can be read by other users. Run: chmod 600 {key}",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_start_without_a_usable_certificate_is_refused_in_one_line_that_names_the_setting(
    files: Files, tmp_path: Path, name: str
) -> None:
    spoil, text = BROKEN[name]
    spoil(files)
    refuse = refused if name == "no key" else refused_settings  # one in a process of its own shows that all is said
    code, said = refuse("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", **files.env)
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith("dueline: " + text.format(cert=files.cert, key=files.key))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("given", "missing"), [("CERT", "key"), ("KEY", "cert")])
def test_a_certificate_and_its_key_are_set_together(files: Files, given: str, missing: str) -> None:
    name = f"DUELINE_SERVER__TLS__{given}"
    code, said = refused_settings("--listen", "127.0.0.1:0", **{name: files.env[name]})
    assert (code, said.startswith(f"dueline: server.tls.{missing}: is missing")) == (2, True), said


@pytest.mark.parametrize(
    ("owner", "mode", "why"),
    [
        (1000, 0o600, None),
        (1000, 0o400, None),
        (1000, 0o640, "can be read by other users"),
        (1000, 0o604, "can be read by other users"),
        (0, 0o640, None),
        (0, 0o644, "can be read by other users"),
        (1001, 0o600, "belongs to another user"),
    ],
)
def test_only_its_user_and_a_group_chosen_by_root_may_read_a_key(owner: int, mode: int, why: str | None) -> None:
    found = SimpleNamespace(st_uid=owner, st_mode=0o100000 | mode)
    assert key_refusal(cast(os.stat_result, found), 1000) == why


@pytest.mark.parametrize("year", [2049, 2050])  # from 2050 on, certificates write the year with four digits
def test_the_end_of_a_certificate_is_read_from_it(files: Files, year: int) -> None:
    end = datetime(year, 6, 7, 8, 9, 10, tzinfo=UTC)
    assert not_after_s(files.renew(end)) == end.timestamp()


# --- serving ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_every_address_of_the_server_speaks_https_and_the_ready_line_says_so(
    files: Files, tmp_path: Path, workers: str
) -> None:
    other = free_port()
    env = {**files.env, "DUELINE_DIALECTS__OUQIANG__LISTEN": f"127.0.0.1:{other}"}
    server = ServerProcess(tmp_path / "data", args=("--workers", workers), env=env)
    await server.start()
    try:
        [line] = [line for line in server.output if " ready on " in line]
        assert f"ready on https://127.0.0.1:{server.port} " in line
        assert f"ouqiang on https://127.0.0.1:{other}" in line
        for port in (server.port, other):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=files.trusting)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200"), port
            writer.close()
    finally:
        await server.stop()


async def test_clients_and_the_command_line_reach_it_with_a_private_authority(files: Files, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", env=files.env)
    await server.start()
    url = f"https://localhost:{server.port}"
    try:
        with Client(url, tls=files.trusting) as client:
            client.send("mail", {"to": "ann"}, id="one")
        command = [*DUELINE, "get", "mail", "one", "--url", url, "-o", "json"]

        def typed(**env: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})

        trusted = await asyncio.to_thread(typed, SSL_CERT_FILE=str(files.ca))
        stranger = await asyncio.to_thread(typed)
    finally:
        await server.stop()
    assert (trusted.returncode, json.loads(trusted.stdout)["id"]) == (0, "one"), trusted.stderr
    assert (stranger.returncode, "no certificate that can be trusted" in stranger.stderr) == (1, True), stranger.stderr


@pytest.mark.parametrize(("least", "accepted"), [("1.2", True), ("1.3", False)])
async def test_a_client_of_tls_1_2_is_served_unless_1_3_is_asked_for(
    files: Files, tmp_path: Path, least: str, accepted: bool
) -> None:
    server = ServerProcess(tmp_path / "data", env={**files.env, "DUELINE_SERVER__TLS__MIN_VERSION": least})
    await server.start()
    files.trusting.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=files.trusting)
        writer.close()
        was_accepted = True
    except ssl.SSLError:
        was_accepted = False
    finally:
        await server.stop()
    assert was_accepted == accepted


# --- certificates replaced while it runs --------------------------------------------------------------------------


@contextmanager
def callers(url: str, tls: ssl.SSLContext) -> Iterator[tuple[list[int], list[Exception]]]:
    """Clients that call all the time, two on one connection each and two on a new one for each call. Their calls are
    tried once. What comes out: how many were answered, and the errors."""
    answered, errors, over = [0], list[Exception](), threading.Event()

    def connect() -> Client:
        return Client(url, tls=tls, patience=Patience(deadline_s=0))

    def call(keep: bool) -> None:
        client = connect()
        while not over.is_set():
            try:
                client.send("mail", 1)
                answered[0] += 1
                if not keep:
                    client.close()
                    client = connect()
            except Exception as error:
                errors.append(error)
        client.close()

    threads = [threading.Thread(target=call, args=(keep,)) for keep in (True, True, False, False)]
    for thread in threads:
        thread.start()
    try:
        yield answered, errors
    finally:
        over.set()
        for thread in threads:
            thread.join()


async def until_logged(server: ServerProcess, text: str, times: int = 1) -> None:
    await server.printed(lambda line: text in line, times, SOON_S)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_certificate_replaced_while_clients_call_fails_no_request(
    files: Files, tmp_path: Path, workers: str
) -> None:
    server = ServerProcess(tmp_path / "data", args=("--workers", workers), env=files.env)
    await server.start()

    def replace() -> tuple[int, list[Exception], list[float]]:
        took_s: list[float] = []
        with callers(f"https://localhost:{server.port}", files.trusting) as (answered, errors):
            for _ in range(2):
                wait_until(lambda before=answered[0]: answered[0] > before + 20, within_s=SOON_S)
                new, begun_s = files.renew(), time.monotonic()
                wait_until(lambda new=new: files.served_at(server.port) == new, within_s=SOON_S)
                took_s.append(time.monotonic() - begun_s)
                wait_until(  # each worker serves it
                    lambda new=new: all(files.served_at(server.port) == new for _ in range(8)), within_s=SOON_S
                )
        return answered[0], errors, took_s

    try:
        answered, errors, took_s = await asyncio.to_thread(replace)
    finally:
        await server.stop()
    served = " and ".join(f"{one_s:.2f} s" for one_s in took_s)
    print(
        f"{workers} workers: {answered} requests, {len(errors)} failed; the new certificates were served after {served}"
    )
    assert (answered > 40, errors) == (True, [])
    assert not [line for line in server.output if "cannot be used" in line]


async def test_a_new_certificate_that_is_broken_is_logged_and_the_old_one_stays_in_use(
    files: Files, tmp_path: Path
) -> None:
    end = datetime(2040, 1, 2, tzinfo=UTC)
    old = files.renew(end)
    server = ServerProcess(tmp_path / "data", env=files.env)
    await server.start()

    async def metrics() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=files.trusting)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        page = (await reader.read()).decode()
        writer.close()
        return page

    try:
        files.replace(files.cert, b"hello")
        await until_logged(server, "the old one stays in use")
        text = f"server.tls.cert: {files.cert} is not a certificate in PEM format"
        assert sum(text in line for line in server.output) == 1
        assert await asyncio.to_thread(files.served_at, server.port) == old
        page = await metrics()
        assert float(page.split("\ndueline_tls_certificate_expiry_timestamp_seconds ")[1].split()[0]) == end.timestamp()
        assert "dueline_tls_reload_failures_total 1.0" in page
        new = files.renew()
        await until_logged(server, "the certificate was reloaded")
        assert await asyncio.to_thread(files.served_at, server.port) == new
    finally:
        await server.stop()


async def test_a_key_that_was_open_to_others_is_used_once_it_is_private(files: Files, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", env=files.env)
    await server.start()
    try:
        new = files.renew()
        files.key.chmod(0o644)
        await until_logged(server, "can be read by other users")
        files.key.chmod(0o600)
        await until_logged(server, "the certificate was reloaded")
        assert await asyncio.to_thread(files.served_at, server.port) == new
    finally:
        await server.stop()


async def test_a_worker_that_is_replaced_while_the_files_are_broken_is_tried_again_and_the_other_serves(
    files: Files, tmp_path: Path
) -> None:
    good = files.cert.read_bytes()
    server = ServerProcess(tmp_path / "data", args=("--workers", "2"), env=files.env)
    await server.start()
    try:
        files.replace(files.cert, b"hello")
        os.kill(server.workers()[0], signal.SIGKILL)
        await until_logged(server, "dueline: server.tls.cert: ")
        with Client(f"https://localhost:{server.port}", tls=files.trusting) as client:
            client.send("mail", 1)
        files.replace(files.cert, good)
        await until(lambda: len(server.workers()) >= 2, within_s=SOON_S)
    finally:
        assert await server.stop() == 0


async def test_an_expired_certificate_is_logged_and_served(files: Files, tmp_path: Path) -> None:
    old = files.renew(datetime(2020, 1, 1, tzinfo=UTC))
    server = ServerProcess(tmp_path / "data", env=files.env)
    await server.start()
    try:
        assert await asyncio.to_thread(files.served_at, server.port) == old
        assert sum("the certificate has expired" in line for line in server.output) == 1
    finally:
        await server.stop()


@pytest.mark.parametrize("workers", [1, 2])
async def test_sighup_loads_the_certificate_again_in_each_process_and_ends_none(
    files: Files, tmp_path: Path, workers: int
) -> None:
    server = ServerProcess(tmp_path / "data", args=("--workers", str(workers)), env=files.env)
    await server.start()
    before = server.workers()
    try:
        server.signal(signal.SIGHUP)  # the files have not changed: only a signal loads them again
        await until_logged(server, "certificate was reloaded", times=workers)
        assert (server.running, server.workers()) == (True, before)
    finally:
        assert await server.stop() == 0
