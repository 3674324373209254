"""Send broken requests of every route to a real server that checks tokens, and look for what must never happen.

    python -m tools.fuzz --seconds 600 [--seed N] [--keep FOLDER]

Each input starts as a valid request (tools.route_samples) and is damaged in its JSON, form, path, headers, framing,
token or bytes; some are pipelined, sent in pieces or cut off. It fails if the server exits, answers 500 with its own
"internal" error, logs an unexpected error, or stops answering /healthz. The inputs depend on the seed only; a failing
one is written to the folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from dueline.dialects.table import DIALECTS
from dueline.testing.process import DUELINE

from .faults.server_process import ServerProcess
from .route_samples import SAMPLES

CLIENTS = 8
READ_S = 3.0
UNEXPECTED = ("unexpected error", "Traceback", "an answer cannot be written")
NASTY: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63,
        2**64,
        -(2**63),
        1e308,
        0.1,
        "",
        " ",
        "\u0000",
        "\ud800",
        "*",
        "a\nb",
        "ä",
        "😀",
    ),
    *(
        "%00",
        "../../etc/passwd",
        "{x}",
        "9" * 400,
        "x" * 70_000,
        [],
        {},
        [[]],
        {"a": {}},
        [None],
        "NaN",
        "1h30m",
        "-1s",
    ),
)
HEADERS = (
    *(
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
        "Content-Length: -1",
        "Content-Length: 99999999999999999",
    ),
    *("Content-Length: 0", "Expect: 100-continue", "Upgrade: h2c", "Connection: upgrade", "Host: a, b", "Host:", ": x"),
    *("Content-Type: text/plain", "Content-Type: application/json; charset=utf-16", "Dueline-Namespace: other"),
    *(
        "Dueline-Namespace: \u00e4",
        "Dueline-Namespace: *",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "X: " + "y" * 40_000,
    ),
    *("Authorization: Basic YTpi", "Authorization: Bearer", "Accept: */*;q=x", "Content-Encoding: gzip", "X:\x00"),
)


class Inputs:
    """Makes damaged requests, always the same ones for a seed."""

    def __init__(self, seed: int, tokens: list[str]) -> None:
        self._random = random.Random(seed)
        self._tokens = tokens

    def next(self) -> bytes:
        pick = self._random
        kind = pick.random()
        if kind < 0.03:
            return pick.randbytes(pick.randint(1, 300))
        if kind < 0.13:
            return b"".join(self._request(close=False) for _ in range(pick.randint(2, 40))) + self._request(close=True)
        return self._request(close=True)

    def _request(self, close: bool) -> bytes:
        pick = self._random
        sample = SAMPLES[pick.choice(list(SAMPLES))]
        path, media, body = sample.written(pick.choice(("t", "t.1", "a b", "*", "x" * 200)).replace(" ", "%20"))
        if sample.body is not None and pick.random() < 0.6:
            body = self._json(json.loads(body))
        for _ in range(pick.choice((0, 0, 1, 1, 3))):
            body = self._bytes(body)
        if pick.random() < 0.15:
            path = self._path(path)
        method = (
            sample.method if pick.random() < 0.95 else pick.choice(("GET", "HEAD", "PUT", "OPTIONS", "CONNECT", "x"))
        )
        lines = ["Host: 127.0.0.1", f"Content-Type: {media}"]
        token = self._tokens[0] if pick.random() < 0.7 else pick.choice(self._tokens)
        if pick.random() < 0.1:
            token = self._bytes(token.encode()).decode("latin-1")
        if path.startswith("/v1") or pick.random() < 0.1:
            lines.append(f"Authorization: Bearer {token}")
        elif pick.random() < 0.95:
            path = f"/{token}{path}"
        length = len(body) if pick.random() < 0.95 else max(0, len(body) + pick.choice((-1, 1, 100)))
        if body or length:
            lines.append(f"Content-Length: {length}")
        for _ in range(pick.choice((0, 0, 0, 0, 0, 0, 0, 1, 2, 120))):
            lines.insert(pick.randint(0, len(lines)), pick.choice(HEADERS))
        if close:
            lines.append("Connection: close")
        version = "HTTP/1.1" if pick.random() < 0.97 else pick.choice(("HTTP/1.0", "HTTP/2.0", "HTTP/9", ""))
        head = "\r\n".join((f"{method} {path} {version}", *lines))
        whole = head.encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body
        return self._bytes(whole) if pick.random() < 0.1 else whole

    def _json(self, value: Any) -> bytes:
        """The same JSON with one or more values replaced, removed, added or nested deeply."""
        pick = self._random
        if isinstance(value, dict):
            for _ in range(pick.choice((1, 1, 2, 5))):
                name = pick.choice([*value, "delay", "at_ms", "retry", "merge", "unknown"])
                if pick.random() < 0.15:
                    value.pop(name, None)
                else:
                    value[name] = pick.choice(NASTY)
        text = json.dumps(value, ensure_ascii=pick.random() < 0.5)
        if pick.random() < 0.05:
            text = "[" * 2000 + text + "]" * 2000
        if pick.random() < 0.05:
            text = text.replace("null", "1e400")
        return text.encode("utf-8", "surrogatepass")

    def _bytes(self, data: bytes) -> bytes:
        pick = self._random
        at = pick.randint(0, len(data))
        change = pick.randint(0, 3)
        if change == 0:
            return data[:at] + pick.randbytes(1) + data[at + 1 :]
        if change == 1:
            return data[:at] + data[at + pick.randint(0, 20) :]
        if change == 2:
            return data[:at] + pick.choice((b"\x00", b"\xff\xfe", b"%", b"\r\n", b'"', b"}", b"\\ud800")) + data[at:]
        return data[:at]

    def _path(self, path: str) -> str:
        pick = self._random
        at = pick.randint(1, len(path))
        return (
            path[:at]
            + pick.choice(("%", "%00", "%ff", "//", "/../", "%2f", "?a=1&a=2", "#x", "%zz", "x" * 9000))
            + path[at:]
        )


class Run:
    """One server, its clients and what they saw."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self._folder = folder
        self._seed = seed
        self._until_s = time.monotonic() + seconds
        self.statuses: Counter[str] = Counter()
        self.inputs = 0
        self.failures: list[str] = []

    async def client(self, number: int, port: int, tokens: list[str]) -> None:
        inputs = Inputs(self._seed * 1000 + number, tokens)
        cut = random.Random(self._seed * 1000 + number)
        while time.monotonic() < self._until_s and len(self.failures) < 20:
            data = inputs.next()
            try:
                connection = await asyncio.open_connection("127.0.0.1", port)
            except OSError as error:
                self._fail(f"no connection: {error}", data)
                return
            self.inputs += 1
            self._judge(data, await self._send(*connection, data, cut))

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, cut: random.Random
    ) -> bytes:
        try:
            at = 0
            while at < len(data):
                size = len(data) if cut.random() < 0.8 else cut.randint(1, 200)
                writer.write(data[at : at + size])
                await writer.drain()
                at += size
            if cut.random() < 0.5:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(-1), READ_S if cut.random() < 0.1 else 0.3)
        except TimeoutError:
            self.statuses["left open"] += 1
            return b""
        except OSError:
            self.statuses["reset"] += 1
            return b""
        finally:
            writer.transport.abort()

    def _judge(self, data: bytes, answer: bytes) -> None:
        for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer):
            self.statuses[status.decode()] += 1
        # EXFE's original answers some faults with 500 and a plain text; nothing else may be 500.
        for answered in re.findall(rb"HTTP/1\.1 500 .*?\r\n\r\n", answer, re.DOTALL):
            if b"text/plain" not in answered:
                self._fail("500", data)

    def _fail(self, why: str, data: bytes) -> None:
        self.failures.append(why)
        (self._folder / f"failure-{len(self.failures)}.bin").write_bytes(data)


def start_folder(folder: Path) -> tuple[Path, list[str]]:
    """A configuration with tokens and every dialect, and a few tokens."""
    sections = "".join(
        f'[dialects.{spec.name}]\nauth = "path"\n' for spec in DIALECTS if hasattr(spec.settings, "auth")
    )
    config = folder / "dueline.toml"
    config.write_text(f'[server]\nauth = "tokens"\n[log]\nformat = "json"\n{sections}')
    rights = (("admin",), ("send", "pull"), ("read", "--topic", "t"), ("push", "--namespace", "other"))
    tokens: list[str] = []
    for number, (right, *more) in enumerate(rights):
        if more[:1] == ["pull"]:
            more = ["--right", "pull"]
        whole = [] if "--namespace" in more else ["--all-namespaces"]
        command = [*DUELINE, "token", "create", f"fuzz-{number}", "--right", right, *more, *whole]
        command += ["--url", f"embedded:{folder / 'data'}", "-o", "json"]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        tokens.append(json.loads(made.stdout)["token"])
    return config, tokens


def peak_bytes(pid: int) -> int:
    """The most memory that a process has used."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


async def fuzz(folder: Path, seed: int, seconds: float) -> int:
    config, tokens = start_folder(folder)
    server = ServerProcess(folder / "data", args=("--config", str(config)), env={"DUELINE_LOG__LEVEL": "warning"})
    await server.start()
    run = Run(folder, seed, seconds)
    before = peak_bytes(server.pid)
    clients = [asyncio.create_task(run.client(n, server.port, tokens)) for n in range(CLIENTS)]
    progress = asyncio.create_task(_progress(run, seconds))
    await asyncio.gather(*clients)
    progress.cancel()
    crashed = not server.running
    peak = before if crashed else peak_bytes(server.pid)
    healthy = not crashed and await _healthy(server.port)
    code = await server.stop()
    unexpected = [line for line in server.output if any(sign in line for sign in UNEXPECTED)]
    print(f"\nseed {seed}, {run.inputs} inputs in {seconds:g} s, answers: {dict(sorted(run.statuses.items()))}")
    print(f"crashes {int(crashed)}, unexpected 500s {len(run.failures)}, unexpected log lines {len(unexpected)}")
    print(f"memory of the server: {before >> 20} MiB after the start, at most {peak >> 20} MiB")
    for line in (*run.failures[:10], *unexpected[:10]):
        print(line[:2000])
    return 0 if healthy and code == 0 and not run.failures and not unexpected else 1


async def _healthy(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(-1), 10)
    writer.close()
    return b" 200 " in answer


async def _progress(run: Run, seconds: float) -> None:
    began = time.monotonic()
    while sys.stderr.isatty():
        spent = time.monotonic() - began
        print(
            f"\r{spent:4.0f} of {seconds:g} s, {run.inputs} inputs, {len(run.failures)} failures",
            end="",
            file=sys.stderr,
        )
        await asyncio.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--keep", type=Path, help="where failing inputs are written (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dueline-fuzz-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return asyncio.run(fuzz(folder, options.seed, options.seconds))


if __name__ == "__main__":
    raise SystemExit(main())
