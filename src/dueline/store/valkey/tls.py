"""TLS towards a store: its settings as one value, the ssl.SSLContext that they make, and what a refusal means.

A new connection uses the files as they are then, so renewed files need no restart. The code that connects gets the
value and calls `context` and `name_of`; no other code knows how TLS is configured.
"""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Meta

from ...certificate_files import Identity, certificates_in, identity, load_pair

SECURE_SCHEMES = tuple(name + way for name in ("rediss", "valkeys") for way in ("", "+sentinel", "+cluster"))
URL_OPTIONS = {
    "ssl_ca_certs": "store.tls.ca",
    "ssl_certfile": "store.tls.cert",
    "ssl_keyfile": "store.tls.key",
    "ssl_cert_reqs": "store.tls.verify",
    "ssl_check_hostname": "store.tls.server_name",
}


class StoreTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TLS towards the store, for a URL that begins with rediss:// or valkeys://."""

    ca: Annotated[
        str | None,
        Meta(
            description="File of the authorities that may sign the store's certificate, in PEM format. Empty: those of "
            "the system."
        ),
    ] = None
    cert: Annotated[
        str | None,
        Meta(
            description="File of the client certificate that the store asks for, in PEM format, followed by any "
            "intermediate certificates."
        ),
    ] = None
    key: Annotated[
        str | None,
        Meta(
            description="File of its private key, in PEM format, not encrypted. No other user may be able to read it."
        ),
    ] = None
    server_name: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,253}$")] | None,
        Meta(description="The name or address that the store's certificate must contain. Empty: the host in the URL."),
    ] = None
    verify: Annotated[
        bool,
        Meta(
            description="Whether the store's certificate is checked. With false, anyone between the server and the "
            "store can read and change every job; each start logs a warning."
        ),
    ] = True

    @property
    def warning(self) -> str | None:
        """What an operator must know about these settings."""
        if self.verify:
            return None
        return (
            "the store's certificate is not checked (store.tls.verify = false): anyone between here and the store can "
            "read and change every job"
        )

    def url_refusal(self, url: str | None) -> str | None:
        """Why these settings do not fit the URL of the store (None: the embedded store). None: they do."""
        if (self.cert is None) != (self.key is None):
            missing, given = ("key", "cert") if self.key is None else ("cert", "key")
            return f"store.tls.{missing}: is missing; store.tls.{given} alone is not enough for a client certificate"
        if not self.verify and self.ca is not None:
            return "store.tls.ca: has no effect with store.tls.verify = false: remove one of them"
        for name, _ in [] if url is None else parse_qsl(urlsplit(url).query, keep_blank_values=True):
            if name.startswith("ssl"):
                instead = URL_OPTIONS.get(name)
                return f"store.url: the option {name} is not allowed: " + (
                    "remove it, because [store.tls] holds all settings of TLS" if instead is None else f"set {instead}"
                )
        changed = [name for name in self.__struct_fields__ if getattr(self, name) != getattr(StoreTls(), name)]
        if changed and (url is None or not is_secure(url)):
            used = "the embedded store uses no network" if url is None else "store.url does not use TLS"
            return (
                f"store.tls.{changed[0]}: has no effect, because {used}: write store.url as rediss://HOST:PORT, or "
                "remove the settings of store.tls"
            )
        return None

    def context(self) -> ssl.SSLContext:
        """The TLS context for a new connection. Raises BadCertificate."""
        files = (self.ca, self.cert, self.key)
        return _context(self, tuple(None if file is None else identity(file) for file in files))

    def name_of(self, host: str) -> str:
        """The name that the certificate of this host must contain."""
        return self.server_name or host

    def refusal(self, error: BaseException) -> str | None:
        """Why store and client do not trust each other, if that is what this error means. Then trying again does not
        help. None: it means something else."""
        found: BaseException | None = error
        while found is not None and not isinstance(found, ssl.SSLError):
            found = found.__cause__ or found.__context__
        if isinstance(found, ssl.SSLCertVerificationError):
            return f"the store's certificate {self._reason(found)}"
        return None if found is None else ALERTS.get(found.reason)

    def _reason(self, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in UNKNOWN_AUTHORITY:
            known = f"in store.tls.ca ({self.ca})" if self.ca else "known to the system; set store.tls.ca"
            return f"is not signed by an authority that is {known}"
        text = error.verify_message.rstrip(".")
        return {
            NOT_YET_VALID: "is not valid yet: compare the clocks of both machines",
            EXPIRED: "has expired",
            WRONG_NAME: f"is for another name: {text}. Use its name in store.url, or set store.tls.server_name",
            WRONG_ADDRESS: f"is for another address: {text}. Use its name in store.url, or set store.tls.server_name",
        }.get(error.verify_code, f"is refused: {text}")


@lru_cache(maxsize=8)
def _context(tls: StoreTls, _files: tuple[Identity | None, ...]) -> ssl.SSLContext:
    """Made again when a file has changed. The system's authorities take too long (20 ms and more) to be read for each
    try while a store is down."""
    if tls.ca is not None:
        certificates_in(tls.ca, "store.tls.ca")
    context = ssl.create_default_context(cafile=tls.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None and tls.key is not None:
        load_pair(context, tls.cert, tls.key, "store.tls")
    return context


# OpenSSL's codes of a failed check.
UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})  # no issuer, or one that signed itself
NOT_YET_VALID, EXPIRED, WRONG_NAME, WRONG_ADDRESS = 9, 10, 62, 64

DEMANDED = "the store demands a client certificate: set store.tls.cert and store.tls.key"
NOT_TLS = "the store does not speak TLS on this port: name its TLS port, or write the URL as redis://"
TOO_OLD = "the store offers no TLS version from 1.2 on"
ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": DEMANDED,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": f"the store refuses the TLS handshake; perhaps {DEMANDED}",
    "TLSV1_ALERT_UNKNOWN_CA": "the store does not know the authority of the client certificate (store.tls.cert)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client certificate (store.tls.cert) has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client certificate (store.tls.cert) was revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the store refuses the client certificate (store.tls.cert)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the store refuses the client certificate (store.tls.cert)",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the store refuses the client certificate (store.tls.cert)",
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "UNSUPPORTED_PROTOCOL": TOO_OLD,
    "TLSV1_ALERT_PROTOCOL_VERSION": TOO_OLD,
}  # what a failed handshake means, by OpenSSL's reason


def is_secure(url: str) -> bool:
    """Whether connections to this store use TLS."""
    return url.partition("://")[0] in SECURE_SCHEMES
