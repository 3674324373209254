"""Signatures: against the published examples, and against the library that receivers verify with."""

from __future__ import annotations

import base64
import secrets
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from dueline.engine.errors import InvalidField
from dueline.push.signing import check_secret, masked, signed, webhook_id


def generate_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


OLD, NEW, FOREIGN = generate_secret(), generate_secret(), generate_secret()


@pytest.mark.parametrize(
    ("secret", "id", "timestamp_s", "body", "signature"),
    [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_plJ3nmyCDGBKInavdOK15jsl",
            "msg_loFOjxBNrRLzqYUf",
            1731705121,
            b'{"event_type":"ping","data":{"success":true}}',
            "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        ),
    ],
)
def test_the_published_examples_are_signed_as_published(
    secret: str, id: str, timestamp_s: int, body: bytes, signature: str
) -> None:
    assert signed([secret], id, timestamp_s, body) == (
        ("webhook-id", id),
        ("webhook-timestamp", str(timestamp_s)),
        ("webhook-signature", signature),
    )


def test_while_a_secret_is_changed_receivers_with_the_old_and_the_new_one_both_agree() -> None:
    headers = dict(signed([NEW, OLD], webhook_id("default", "t", "1", 2), int(time.time()), b'{"a":1}'))
    for secret in (NEW, OLD):
        assert Webhook(secret).verify(b'{"a":1}', headers) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(FOREIGN).verify(b'{"a":1}', headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(b'{"a":2}', headers)


@given(st.text(max_size=200), st.text(max_size=50))
def test_every_text_and_every_id_is_verified(text: str, id: str) -> None:
    """Texts only: the library takes no other bytes."""
    body = text.encode()
    headers = dict(signed([NEW], webhook_id("default", "t", id, 1), int(time.time()), body))
    Webhook(NEW).verify(body, headers, json_parse=False)


def test_without_a_secret_there_is_an_id_and_a_time_and_no_signature() -> None:
    assert signed([], "msg_1", 5, b"") == (("webhook-id", "msg_1"), ("webhook-timestamp", "5"))


def test_a_delivery_has_one_name_over_all_its_attempts_and_no_other_has_it() -> None:
    deliveries = [
        ("default", "t", "1", 5),
        ("default", "t", "1", 6),  # the id used again
        ("default", "t1", "", 5),
        ("default", "t", "15", 5),
        ("defaultt", "", "1", 5),
        ("other", "t", "1", 5),
        ("default", "t", "é.\u4e2d", 5),
    ]
    ids = [webhook_id(*delivery) for delivery in deliveries]
    assert ids == [webhook_id(*delivery) for delivery in deliveries]
    assert len(set(ids)) == len(deliveries)
    for id in ids:
        assert id.startswith("msg_")
        assert len(id) == 36
        assert id.isascii()
        assert id.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_has_24_to_64_bytes(size: int) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * size).decode()
    assert check_secret(secret) == secret


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "secret",
        "WHSEC_" + base64.b64encode(b"k" * 32).decode(),
        base64.b64encode(b"k" * 32).decode(),
        "whsec_" + base64.b64encode(b"k" * 23).decode(),
        "whsec_" + base64.b64encode(b"k" * 65).decode(),
        "whsec_" + "!" * 44,
        "whsec_" + base64.b64encode(b"k" * 32).decode() + "\n",
        "whsec_" + base64.b64encode(b"k" * 32).decode()[:-1],
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsec_" + "é" * 44,
        "whsk_" + base64.b64encode(b"k" * 32).decode(),
        "whsec_...abcd",
    ],
)
def test_another_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_secret(secret, "secrets[1]")
    assert refused.value.field == "secrets[1]"
    assert not secret.removeprefix("whsec_") or secret.removeprefix("whsec_") not in refused.value.message


def test_a_secret_is_shown_by_its_last_four_characters() -> None:
    secret = generate_secret()
    assert masked(secret) == "whsec_..." + secret[-4:]
    assert masked("whsec_short") == "whsec_..."
