"""What the description of the API says about tokens."""

from __future__ import annotations

import json

from dueline.api.operations import OPERATIONS
from dueline.rights import Right
from dueline.server.openapi import document

SHOWN = json.loads(document("0"))


def test_every_operation_that_needs_a_right_says_so_with_its_refusals() -> None:
    assert SHOWN["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for one in OPERATIONS:
        described = SHOWN["paths"][one.pattern][one.method.lower()]
        assert ({"token": []} in described["security"]) is (one.right is not Right.NONE), one.name
        assert one.right is Right.NONE or {"401", "403", "429"} <= set(described["responses"]), one.name


def test_health_is_public_and_metrics_are_not() -> None:
    assert [SHOWN["paths"][path]["get"]["security"] for path in ("/healthz", "/readyz")] == [[], []]
    assert {"token": []} in SHOWN["paths"]["/metrics"]["get"]["security"]
