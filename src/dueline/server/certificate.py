"""The server's certificate and its key: loaded at the start, and reloaded when a file changes or on SIGHUP.

New connections get the newest certificate; running ones keep theirs. If the new files cannot be used, that is logged
once and the last good certificate stays in use.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from datetime import UTC, datetime

from ..certificate_files import BadCertificate, Identity, certificates_in, identity, load_pair
from ..config.settings import Settings, Tls
from ..event_log import EventLog
from ..metrics import table
from ..metrics.metric import Samples

EVERY_S = 1.0  # between looks at the files; a replaced certificate must be served within 2 s
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

Stamp = tuple[Identity | None, ...]


class Certificate:
    """`load` before use. `start` watches the files, `stop` ends that."""

    def __init__(self, cert: str, key: str, min_version: str) -> None:
        self._cert = cert
        self._key = key
        self._min_version = VERSIONS[min_version]
        self._context: ssl.SSLContext | None = None
        self._expires_s = 0.0
        self._failures = 0
        self._seen: Stamp = ()
        self._doubtful = False  # the files could not be used at the last look, and that is not reported yet
        self._task: asyncio.Task[None] | None = None
        self._log = EventLog("dueline.server")

    @classmethod
    def of(cls, tls: Tls) -> Certificate | None:
        """The certificate of these settings. None: TLS is off."""
        return None if tls.cert is None or tls.key is None else cls(tls.cert, tls.key, tls.min_version)

    def context(self) -> ssl.SSLContext:
        """The TLS context for a new connection."""
        assert self._context is not None, "not loaded"
        return self._context

    def load(self) -> None:
        """Read the files. Raises BadCertificate; the last good certificate stays in use then."""
        self._seen = self._stamp()
        expires_s = _expiry_s(self._cert)
        self._context = _context(self._cert, self._key, self._min_version)
        self._expires_s, self._doubtful = expires_s, False

    def reload(self) -> None:
        """Read the files now, as SIGHUP asks."""
        self._load_again(final=True)

    async def start(self) -> None:
        if self._task is None:
            self._warn_if_expired()
            self._task = asyncio.create_task(self._watch(), name="certificate")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def samples(self) -> list[Samples]:
        return [table.TLS_CERTIFICATE_EXPIRY.value(self._expires_s), table.TLS_RELOAD_FAILURES.value(self._failures)]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            stamp = self._stamp()
            try:
                if self._doubtful or stamp != self._seen:
                    self._load_again(final=self._doubtful and stamp == self._seen)
            except Exception:
                self._log.exception("checking the certificate failed")

    def _load_again(self, final: bool) -> None:
        """`final`: report a failure now. Otherwise look once more first: perhaps only one file has been written yet."""
        try:
            self.load()
        except BadCertificate as error:
            self._doubtful = not final
            if final:
                self._failures += 1
                self._log.error("the new certificate cannot be used; the old one stays in use", error=str(error))
        else:
            self._log.info("the certificate was reloaded", file=self._cert)
            self._warn_if_expired()

    def _warn_if_expired(self) -> None:
        if self._expires_s < time.time():
            self._log.warning("the certificate has expired: clients will refuse it", file=self._cert)

    def _stamp(self) -> Stamp:
        """Changes when a file is replaced or written, or its permissions change."""
        return (identity(self._cert), identity(self._key))


def refusal(settings: Settings) -> str | None:
    """Why the server cannot start with this certificate. None: it can, or TLS is off."""
    certificate = Certificate.of(settings.server.tls)
    try:
        if certificate is not None:
            certificate.load()
    except BadCertificate as error:
        return str(error)
    return None


def _context(cert: str, key: str, min_version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = min_version
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    load_pair(context, cert, key, "server.tls")
    return context


def _expiry_s(cert: str) -> float:
    """When the first certificate of a file expires, since the epoch."""
    first = certificates_in(cert, "server.tls.cert")[:1]
    try:
        return not_after_s(ssl.PEM_cert_to_DER_cert(first[0]))
    except (ValueError, IndexError):
        raise BadCertificate(f"server.tls.cert: {cert} is not a certificate in PEM format") from None


def not_after_s(der: bytes) -> float:
    """When a certificate expires, in seconds since 1970. It is read here because Python reads it only from the
    certificate of a peer."""
    at = _content(der, _content(der, 0)[1])[1]  # Certificate -> TBSCertificate -> its first field
    if der[at] == 0xA0:  # the version, which may be missing
        at = _content(der, at)[2]
    for _ in range(3):  # serial number, signature algorithm, issuer
        at = _content(der, at)[2]
    at = _content(der, at)[1]  # Validity -> notBefore
    tag, start, end = _content(der, _content(der, at)[2])
    text = der[start:end].decode("ascii")
    if tag == 0x17:  # UTCTime has two digits of the year
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _content(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the DER element at this offset, and where its content starts and ends."""
    size, start = der[at + 1], at + 2
    if size >= 0x80:
        start += size - 0x80
        size = int.from_bytes(der[at + 2 : start])
    return der[at], start, start + size
