"""The calls that show what happens: forecast, charts."""

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
        "retries": None,
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
