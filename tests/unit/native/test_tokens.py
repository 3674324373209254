"""/v1/tokens: what is answered and what is refused. The rules themselves: tests/unit/engine/test_tokens.py."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dueline.api.answers import SecretToken, Token

from .kit import START_MS, Api, assert_error

NEW = {"name": "billing", "rights": ["pull", "send"]}
FIELDS = set(Token.__struct_fields__)


def made(api: Api, **fields: Any) -> dict[str, Any]:
    reply = api.post("/v1/tokens", {**NEW, **fields})
    assert reply.status == 201, reply
    return reply.json


def test_a_token_is_made_and_shown_once(api: Api) -> None:
    reply = api.post("/v1/tokens", NEW)
    assert reply.status == 201
    assert set(reply.json) == FIELDS | {"token"}
    text = reply.json.pop("token")
    id = reply.json["id"]
    assert re.fullmatch(rf"dl_{id}_[A-Za-z0-9_-]{{43}}", text)
    assert reply.json == {
        "id": id,
        "name": "billing",
        "state": "active",
        "rights": ["send", "pull"],
        "namespace": "default",
        "topics": ["*"],
        "created_at_ms": START_MS,
        "expires_at_ms": None,
        "revoked_at_ms": None,
        "old_secret_until_ms": None,
        "requests_per_s": None,
        "max_connections": None,
        "max_polls": None,
        "max_pending_jobs": None,
        "max_queued_jobs": None,
        "look_ups_per_s": None,
        "push_allow": None,
    }
    assert api.get(f"/v1/tokens/{id}") == (200, reply.json)
    assert api.get("/v1/tokens") == (200, {"tokens": [reply.json], "next_cursor": None})


def test_the_text_of_a_token_is_in_no_repr() -> None:
    token = SecretToken(id="i", name="n", state="active", rights=(), created_at_ms=0, token="dl_i_secret")
    assert "secret" not in repr(token)


def test_a_token_is_for_the_namespace_of_the_request_unless_it_names_another(api: Api) -> None:
    assert api.post("/v1/tokens", NEW, namespace="shop").json["namespace"] == "shop"
    assert made(api, namespace="other")["namespace"] == "other"
    assert made(api, namespace=None)["namespace"] is None


def test_a_token_expires_after_a_time_or_at_one(api: Api) -> None:
    assert made(api, expires="90d")["expires_at_ms"] == START_MS + 90 * 86_400_000
    soon = made(api, expires_at_ms=START_MS + 5)
    api.clock.advance(5)
    assert api.get(f"/v1/tokens/{soon['id']}").json["state"] == "expired"


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"name": None}, "invalid_field", "name"),
        ({"rights": []}, "invalid_field", "rights"),
        ({"rights": ["none"]}, "invalid_field", "rights[0]"),
        ({"rights": ["send"] * 7}, "too_many_items", "rights"),
        ({"topics": []}, "invalid_field", "topics"),
        ({"topics": ["a", "\n"]}, "invalid_field", "topics[1]"),
        ({"namespace": "no space"}, "invalid_field", "namespace"),
        ({"namespace": "dueline.internal"}, "invalid_field", "namespace"),
        ({"expires": "soon"}, "invalid_field", "expires"),
        ({"expires": "1h", "expires_at_ms": START_MS + 5}, "invalid_field", "expires_at_ms"),
        ({"expires_at_ms": START_MS}, "invalid_field", "expires_at_ms"),
        ({"secret": "mine"}, "unknown_field", "secret"),
    ],
)
def test_a_wrong_token_is_refused_and_stores_nothing(api: Api, change: dict[str, Any], code: str, field: str) -> None:
    assert_error(api.post("/v1/tokens", {**NEW, **change}), 400, code, field)
    assert api.get("/v1/tokens").json["tokens"] == []


def test_a_token_needs_a_name_and_rights(api: Api) -> None:
    assert_error(api.post("/v1/tokens", {"rights": ["send"]}), 400, "missing_field", "name")
    assert_error(api.post("/v1/tokens", {"name": "a"}), 400, "missing_field", "rights")


def test_tokens_are_listed_page_by_page(api: Api) -> None:
    ids = [made(api)["id"] for _ in range(5)]
    found: list[str] = []
    cursor = ""
    while cursor is not None:
        page = api.get(f"/v1/tokens?limit=2{cursor and f'&cursor={cursor}'}").json
        found += [token["id"] for token in page["tokens"]]
        cursor = page["next_cursor"]
    assert found == ids
    for wrong in ("%25", "AAAAAAAAAAAA", "AAAA"):
        assert_error(api.get(f"/v1/tokens?cursor={wrong}"), 400, "invalid_field", "cursor")


def test_a_rotated_token_has_a_new_text(api: Api) -> None:
    first = made(api)
    reply = api.post(f"/v1/tokens/{first['id']}/rotate")
    assert reply.status == 200
    assert reply.json == {**first, "token": reply.json["token"], "old_secret_until_ms": START_MS + 3_600_000}
    assert reply.json["token"] != first["token"]
    now = api.post(f"/v1/tokens/{first['id']}/rotate", {"overlap": "0s"})
    assert now.json["old_secret_until_ms"] is None
    assert_error(api.post(f"/v1/tokens/{first['id']}/rotate", {"overlap": "31d"}), 400, "invalid_field", "overlap")
    assert_error(api.post(f"/v1/tokens/{first['id']}/rotate", {"overlap": "x"}), 400, "invalid_field", "overlap")


def test_a_revoked_token_is_shown_as_revoked_and_cannot_be_rotated(api: Api) -> None:
    first = made(api)
    revoked = {**first, "state": "revoked", "revoked_at_ms": START_MS}
    del revoked["token"]
    assert api.delete(f"/v1/tokens/{first['id']}") == (200, revoked)
    api.clock.advance(5)
    assert api.delete(f"/v1/tokens/{first['id']}") == (200, revoked)
    assert api.get(f"/v1/tokens/{first['id']}") == (200, revoked)
    assert_error(api.post(f"/v1/tokens/{first['id']}/rotate"), 409, "already_done")


def test_an_unknown_token_is_not_found(api: Api) -> None:
    for id in ("5d41402abc4b", "nobody", "%C3%BC"):
        assert_error(api.get(f"/v1/tokens/{id}"), 404, "not_found")
        assert_error(api.delete(f"/v1/tokens/{id}"), 404, "not_found")
        assert_error(api.post(f"/v1/tokens/{id}/rotate"), 404, "not_found")
