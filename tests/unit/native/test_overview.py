"""The calls that show what happens: forecast, charts, open groups."""

from __future__ import annotations

from .kit import START_MS, Api, assert_error

EDGES = f"edges_ms={START_MS},{START_MS + 20},{START_MS + 40}"


def test_a_forecast_of_a_topic_and_of_all(api: Api) -> None:
    for id, delay_ms in (("now", 0), ("a", 10), ("b", 20), ("c", 50)):
        api.send(id, delay_ms=delay_ms)
    expected = {
        "at_ms": START_MS,
        "edges_ms": [START_MS, START_MS + 20, START_MS + 40],
        "counts": [1, 1],
        "retries": [0, 0],
        "paused": [0, 0],
        "later": 1,
        "topics": [{"topic": "t", "counts": [1, 1]}],
        "topics_counted": 1,
        "complete": True,
    }
    assert api.get(f"/v1/topics/t/forecast?{EDGES}") == (200, expected)
    assert api.get(f"/v1/forecast?{EDGES}") == (200, expected)
    api.post("/v1/topics/t/pause", {})
    paused = api.get(f"/v1/topics/t/forecast?{EDGES}").json
    assert (paused["counts"], paused["paused"]) == ([0, 0], [1, 1])


def test_a_forecast_needs_ascending_times(api: Api) -> None:
    assert_error(api.get(f"/v1/topics/nothing/forecast?{EDGES}"), 404, "not_found")
    assert_error(api.get("/v1/forecast"), 400, "missing_field", "edges_ms")
    for wrong in ("5,4", "5,5", "5", "", "a,b", "-1,5", "1,,2"):
        refused = api.get(f"/v1/forecast?edges_ms={wrong}")
        assert (refused.status, refused.json["error"]["code"]) == (400, "invalid_field"), wrong
    assert_error(api.get(f"/v1/forecast?edges_ms={','.join(map(str, range(65)))}"), 400, "too_many_items", "edges_ms")


def test_charts_of_the_last_hours(api: Api) -> None:
    found = api.get("/v1/charts").json
    assert (found["step_ms"], len(found["series"]["sends"])) == (60_000, 1440)
    found = api.get("/v1/charts?hours=2").json
    assert found["from_ms"] == START_MS - 119 * 60_000
    names = ["sends", "deliveries", "acks", "failures", "dead", "pending", "late_p50_ms", "late_p99_ms"]
    assert found["series"] == {name: [None] * 120 for name in names}
    for wrong in ("0", "25", "a"):
        assert_error(api.get(f"/v1/charts?hours={wrong}"), 400, "invalid_field", "hours")


def test_open_groups(api: Api) -> None:
    api.raw("PUT", "/v1/topics/t", b'{"merge":{"quiet_ms":5000}}')
    for number in range(3):
        api.post("/v1/topics/t/jobs", {"body": number, "merge": {"key": f"k{number}"}})
    first = api.get("/v1/topics/t/groups?limit=2").json
    assert [group["merge_key"] for group in first["groups"]] == ["k0", "k1"]
    last = api.get(f"/v1/topics/t/groups?limit=2&cursor={first['next_cursor']}").json
    assert last["next_cursor"] is None
    [group] = last["groups"]
    assert group.pop("id")
    assert group == {
        "merge_key": "k2",
        "items_count": 1,
        "max_items": 1000,
        "bytes": 1,
        "due_at_ms": START_MS + 5000,
        "quiet_ms": 5000,
        "created_at_ms": START_MS,
        "updated_at_ms": START_MS,
    }
    assert api.get("/v1/topics/nothing/groups") == (200, {"groups": [], "next_cursor": None})
    assert_error(api.get("/v1/topics/t/groups?cursor=AAAA"), 400, "invalid_field", "cursor")
