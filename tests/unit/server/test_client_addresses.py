"""Connections by client address: shares, who gives way, and what is kept for health."""

from __future__ import annotations

import random

import pytest

from dueline.server.client_addresses import KEPT_FOR_HEALTH, Admission, ClientAddresses, Refusal, address_key


class Stub:
    """A connection."""

    def __init__(self, idle_since_s: float | None = None) -> None:
        self.idle_since_s = idle_since_s
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
    ],
)
def test_an_ipv6_client_counts_by_its_network(host: str, key: str) -> None:
    assert address_key(host) == key


def test_a_client_of_a_unix_socket_has_no_share() -> None:
    addresses = ClientAddresses(10, 1, 1)
    admissions = [addresses.arrive("", Stub()) for _ in range(3)]
    assert [one.refusal for one in admissions] == [None] * 3
    assert all(addresses.begin_request(one) for one in admissions)


def test_the_oldest_idle_connection_of_the_address_with_the_most_gives_way() -> None:
    addresses = ClientAddresses(6, 10, 10)
    clients = [Stub(since_s) for since_s in (None, 30.0, 10.0, 20.0)]
    for client in clients:
        addresses.arrive("10.0.0.1", client)
    others = [Stub(1.0), Stub(1.0)]
    for client in others:
        addresses.arrive("10.0.0.2", client)
    assert addresses.arrive("10.0.0.3", Stub()).refusal is None
    assert [client.closed for client in clients] == [False, False, True, False]
    assert addresses.arrive("10.0.0.2", Stub()).refusal is Refusal.ALL  # it would have as many as the other
    assert not any(client.closed for client in others)
    assert addresses.connections == 6


def test_equal_addresses_do_not_drive_out_one_another() -> None:
    addresses = ClientAddresses(3, 10, 10)
    clients = [Stub(1.0) for _ in range(3)]
    for number, client in enumerate(clients):
        addresses.arrive(f"10.0.0.{number}", client)
    assert addresses.arrive("10.0.0.9", Stub()).refusal is Refusal.ALL
    assert not any(client.closed for client in clients)


def test_the_connections_for_health_are_few_and_a_new_one_replaces_the_oldest() -> None:
    addresses = ClientAddresses(1, 10, 10)
    addresses.arrive("10.0.0.1", Stub())
    same = [Stub() for _ in range(3)]
    for client in same:
        assert addresses.arrive("10.0.0.2", client).refusal is Refusal.ALL
    assert [client.closed for client in same] == [True, False, False]
    many = [Stub() for _ in range(KEPT_FOR_HEALTH + 5)]
    for number, client in enumerate(many):
        addresses.arrive(f"10.0.1.{number}", client)
    assert [client.closed for client in same] == [True] * 3
    assert sum(not client.closed for client in many) == KEPT_FOR_HEALTH


def test_a_handshake_is_an_unfinished_request_and_over_the_share_only_health_is_served() -> None:
    addresses = ClientAddresses(10, 10, 2)
    shaking = [addresses.arrive("10.0.0.1", Stub(), shakes_hands=True) for _ in range(3)]
    assert [one.refusal for one in shaking] == [None, None, Refusal.UNFINISHED]
    addresses.end_request(shaking[0])
    assert addresses.arrive("10.0.0.1", Stub(), shakes_hands=True).refusal is None
    assert addresses.arrive("10.0.0.2", Stub(), shakes_hands=True).refusal is None


def test_the_numbers_are_right_after_any_sequence() -> None:
    draw = random.Random(7)
    addresses = ClientAddresses(20, 6, 3)
    admissions: list[tuple[Admission, Stub]] = []
    for _ in range(5000):
        if draw.random() < 0.55 or not admissions:
            client = Stub(draw.choice([None, draw.random()]))
            admissions.append((addresses.arrive(f"10.0.0.{draw.randint(1, 8)}", client), client))
        elif draw.random() < 0.5:
            addresses.leave(admissions.pop(draw.randrange(len(admissions)))[0])
        else:
            admission, _ = draw.choice(admissions)
            draw.choice([addresses.begin_request, addresses.end_request])(admission)
        admissions = [(one, client) for one, client in admissions if not client.closed]
        inside = [one for one, _ in admissions if one.refusal is None]
        by_address = [sum(one.use.key == key for one in inside) for key in {one.use.key for one in inside}]
        used = {limit: number for limit, (_, number) in addresses.in_use().items()}
        assert used[Refusal.ALL] == len(inside) <= 20
        assert used[Refusal.ADDRESS] == max(by_address, default=0) <= 6
        assert used[Refusal.UNFINISHED] <= 3
    for admission, _ in admissions:
        addresses.leave(admission)
        addresses.leave(admission)
    assert {limit: number for limit, (_, number) in addresses.in_use().items()} == dict.fromkeys(Refusal, 0)
