"""Certificates and private keys in PEM files, checked when they are read. Errors name the setting and the file.

A key must be private: it belongs to the user of this process or to root, and no other user can read it.
"""

from __future__ import annotations

import os
import ssl
import stat

Identity = tuple[int, int, int]


class BadCertificate(ValueError):
    """A certificate or a key cannot be used. The text names the setting. Exit code 2."""


def load_pair(context: ssl.SSLContext, cert: str, key: str, section: str) -> None:
    """Use this certificate and its key. `section` is that of their settings, such as "server.tls". Raises
    BadCertificate."""
    certificates_in(cert, f"{section}.cert")
    setting = f"{section}.key"
    try:
        found = os.stat(key)
    except OSError as error:
        raise BadCertificate(f"{setting}: {key}: {error.strerror or error}") from None
    why = key_refusal(found, os.geteuid())
    if why is not None:
        raise BadCertificate(f"{setting}: {key} {why}. Run: chmod 600 {key}, as the user who runs this program")
    _text(key, setting)

    def encrypted() -> str:
        raise BadCertificate(f"{setting}: {key} is encrypted. Decrypt it: openssl pkey -in {key} -out NEW_FILE")

    try:
        context.load_cert_chain(cert, key, encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadCertificate(f"{setting}: {key} is not the key of the certificate {cert}") from None
        raise BadCertificate(f"{setting}: {key} is not a private key in PEM format") from None
    except OSError as error:
        raise BadCertificate(f"{setting}: {key}: {error.strerror or error}") from None


def certificates_in(path: str, setting: str) -> list[str]:
    """The certificates of a file, each in PEM format. All of them must be readable. Raises BadCertificate."""
    text = _text(path, setting)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:  # SSLError is an OSError
        raise BadCertificate(f"{setting}: {path} is not a certificate in PEM format") from None
    return [
        f"{ssl.PEM_HEADER}{part.partition(ssl.PEM_FOOTER)[0]}{ssl.PEM_FOOTER}"
        for part in text.split(ssl.PEM_HEADER)[1:]
    ]


def key_refusal(found: os.stat_result, user: int) -> str | None:
    """Why a key with these permissions is not used by this user. A key of root may be readable for a group, as packages
    of certificates install it."""
    if found.st_uid not in (0, user):
        return "belongs to another user"
    allowed = 0o640 if found.st_uid == 0 else 0o600
    if stat.S_IMODE(found.st_mode) & 0o777 & ~allowed & ~0o100:
        return "can be read by other users"
    return None


def identity(path: str) -> Identity | None:
    """Changes when the file is replaced or written, or its permissions change. None: it cannot be found."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _text(path: str, setting: str) -> str:
    try:
        with open(path, encoding="latin-1") as file:
            return file.read()
    except OSError as error:
        raise BadCertificate(f"{setting}: {path}: {error.strerror or error}") from None
