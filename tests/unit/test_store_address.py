"""The addresses of stores: what they mean, and what is refused without showing a password."""

from __future__ import annotations

import pytest

from dueline.runtime.locations import store_at
from dueline.store_address import Endpoint, Kind, StoreAddress, is_store_url, parse_store_url, with_sentinel_login


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (
            "redis://ann:p%40ss@h:7000/2?socket_timeout=3",
            StoreAddress(
                *(Kind.STANDALONE, (Endpoint("h", 7000),), "redis://ann:p%40ss@h:7000/2?socket_timeout=3"),
                *("redis://h:7000/2", "redis+cluster://h:7000", "", 2),
            ),
        ),
        (
            "valkeys://h",
            StoreAddress(
                *(Kind.STANDALONE, (Endpoint("h", 6379),), "rediss://h:6379/", "valkeys://h", "valkeys+cluster://h"),
            ),
        ),
        (
            "unix:///run/v.sock?db=3",
            StoreAddress(
                Kind.STANDALONE, (Endpoint("/run/v.sock", 0),), "unix:///run/v.sock?db=3", "unix:///run/v.sock"
            ),
        ),
        (
            "redis+sentinel://:pw@h1:1,h2,[::1]:3/my%2Fjobs/4?sentinel_password=s%26t&socket_timeout=3",
            StoreAddress(
                *(Kind.SENTINEL, (Endpoint("h1", 1), Endpoint("h2", 26379), Endpoint("::1", 3))),
                *("redis://:pw@h1:1/4?socket_timeout=3", "redis+sentinel://h1:1,h2,[::1]:3/my%2Fjobs/4"),
                *("redis+cluster://h1:1,h2,[::1]:3", "my/jobs", 4, (None, "s&t")),
            ),
        ),
        (
            "rediss+cluster://ann:pw@h1:1,h2",
            StoreAddress(
                *(Kind.CLUSTER, (Endpoint("h1", 1), Endpoint("h2", 6379)), "rediss://ann:pw@h1:1/"),
                *("rediss+cluster://h1:1,h2", "rediss+cluster://h1:1,h2"),
            ),
        ),
    ],
)
def test_an_address_is_read_whole(url: str, address: StoreAddress) -> None:
    assert is_store_url(url)
    assert parse_store_url(url) == address
    assert not {"pw", "p%40ss"} & set(address.shown.replace(":", "@").split("@"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h", "must begin with one of"),
        ("redis:h", "must begin with one of"),
        ("redis://:pw@h1,h2", "redis:// takes one address"),
        ("redis+sentinel://:pw@h1:1,h2:2", "name the service"),
        ("redis+sentinel://:pw@h1:1/jobs/x", "the database must be a number"),
        ("redis+cluster://:pw@h1/3", "a Cluster has only the database 0"),
        ("redis+cluster://:pw@h1:1,,h2", "write each node as host or host:port"),
        ("redis+cluster://:pw@h1:65536", "write each node as host or host:port"),
        ("redis://:pw/x@h1", "write each node as host or host:port"),
        ("redis://:pw@h1:x", "write each node as host or host:port"),
        ("unix://", "name the socket"),
    ],
)
def test_a_wrong_address_is_refused_without_its_password(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_store_url(url)
    assert "pw" not in str(refused.value)


def test_the_login_of_the_sentinels_is_added_as_options() -> None:
    url = with_sentinel_login("redis+sentinel://h/jobs", "ann", "p&/@w")
    assert parse_store_url(url).sentinel_login == ("ann", "p&/@w")
    assert with_sentinel_login("redis+sentinel://h/jobs", None, None) == "redis+sentinel://h/jobs"


def test_a_program_without_settings_reads_the_login_of_the_sentinels_from_its_environment() -> None:
    env = {"DUELINE_STORE__SENTINEL_USERNAME": "ann", "DUELINE_STORE__SENTINEL_PASSWORD": "pw"}
    assert parse_store_url(store_at("redis+sentinel://h/jobs", env).url).sentinel_login == ("ann", "pw")
    assert store_at("redis+cluster://h", env).url == "redis+cluster://h"
