"""The rule itself: canonical URLs, the allow-list, ports, and that nothing odd gets through or blows up."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.engine.errors import EgressRefused, InvalidField
from dueline.push.addresses import plain, read_ipv4, why_not_public
from dueline.push.egress import DENIED_NAMES, Egress, check_token_list, shown, token_list

PUBLIC = "93.184.216.34"
PUBLIC_V6 = "2606:2800:220:1:248:1893:25c8:1946"


@pytest.mark.parametrize(
    ("written", "called"),
    [
        ("http://shop.example", "http://shop.example/"),
        ("HTTP://SHOP.Example:80/A?b=C#d", "http://shop.example/A?b=C"),
        ("https://shop.example:443/", "https://shop.example/"),
        ("https://shop.example:08443/", "https://shop.example:8443/"),
        ("http://shop.example.:8080/", "http://shop.example:8080/"),
        ("http://shop.example?x=1", "http://shop.example/?x=1"),
        ("http://bücher.example/ä?ö=ü", "http://xn--bcher-kva.example/%C3%A4?%C3%B6=%C3%BC"),
        ("http://my_service.corp.example/", "http://my_service.corp.example/"),
        ("http://0135.0270.0330.042/", f"http://{PUBLIC}/"),
        (f"http://[::ffff:{PUBLIC}]:81/", f"http://{PUBLIC}:81/"),
        ("http://[2606:2800:220:1:248:1893:25C8:1946]/", f"http://[{PUBLIC_V6}]/"),
        (
            "http://shop.example/a%2Fb/%7e;x=1/../c?sig=a%2Bb+c%3D&q=[1]",
            "http://shop.example/a%2Fb/%7e;x=1/../c?sig=a%2Bb+c%3D&q=[1]",
        ),
    ],
)
def test_a_url_is_called_in_its_canonical_form_with_path_and_query_as_they_were_written(
    written: str, called: str
) -> None:
    destination = Egress().check_url(written)
    assert destination.url == called
    assert Egress().check_url(called) == destination


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "100.63.255.255", "172.32.0.1", "169.253.0.1", "11.0.0.1"])
def test_public_ipv4_addresses_are_called(address: str) -> None:
    assert Egress().objection(address, 80) is None


@pytest.mark.parametrize("address", [PUBLIC_V6, "2a00:1450:4001:81b::200e", "2001:4860:4860::8888"])
def test_public_ipv6_addresses_are_called(address: str) -> None:
    assert Egress().objection(address, 80) is None


def test_a_network_on_the_allow_list_is_open_and_nothing_else() -> None:
    egress = Egress(["10.0.0.0/8", "127.0.0.1", "fd00::/8"])
    open_now = ["10.1.2.3", "::ffff:10.1.2.3", "127.0.0.1", "fd12::1"]
    assert [egress.objection(address, 6379) for address in open_now] == [None] * 4
    assert egress.objection("127.0.0.2", 80) == "a loopback address"
    assert egress.objection("192.168.0.1", 80) == "a private address"
    assert egress.objection("::1", 80) == "a loopback address"
    assert Egress(["::1"]).objection("::1", 80) is None


def test_a_translation_prefix_on_the_allow_list_does_not_open_what_lies_behind_it() -> None:
    egress = Egress(["64:ff9b::/96"])
    assert egress.objection("64:ff9b::93.184.216.34", 80) is None
    assert egress.objection("64:ff9b::127.0.0.1", 80) == "a loopback address"
    assert Egress(["64:ff9b::/96", "127.0.0.0/8"]).objection("64:ff9b::127.0.0.1", 80) is None


def test_a_name_on_the_allow_list_opens_its_addresses_for_calls_to_that_name_only() -> None:
    egress = Egress(["Billing.Corp", "*.shop.internal"])
    for name in ("billing.corp", "a.shop.internal", "a.b.shop.internal"):
        egress.check_url(f"http://{name}/")
        assert egress.objection("10.0.0.1", 80, name) is None
    for name in ("other.corp", "x.billing.corp", "shop.internal", "evilshop.internal", None):
        assert egress.objection("10.0.0.1", 80, name) == "a private address"


def test_no_name_opens_a_metadata_address() -> None:
    egress = Egress(["billing.corp", "*.internal", "metadata.google.internal"])
    assert egress.objection("169.254.169.254", 80, "billing.corp") == "an address of a cloud's metadata service"
    assert egress.objection("fd00:ec2::254", 80, "metadata.google.internal") is not None
    assert Egress(["169.254.169.254"]).objection("169.254.169.254", 80) is None


def test_an_exact_name_weighs_more_than_a_pattern() -> None:
    with pytest.raises(EgressRefused):
        Egress(["*.internal"]).check_url("http://metadata.google.internal/")
    Egress(["*.internal"]).check_url("http://db.internal/")
    Egress(["metadata.google.internal"]).check_url("http://metadata.google.internal/")
    with pytest.raises(EgressRefused):
        Egress(deny_names=["bad.example"]).check_url("http://bad.example/")


def test_localhost_is_as_open_as_loopback() -> None:
    for allow in (["127.0.0.0/8"], ["::1"], ["localhost"]):
        Egress(allow).check_url("http://localhost:9024/")
    for allow in ([], ["10.0.0.0/8"], ["127.0.0.2"]):
        with pytest.raises(EgressRefused, match="is this machine itself"):
            Egress(allow).check_url("http://localhost:9024/")


def test_a_list_of_ports_holds_for_all_that_is_not_on_the_allow_list() -> None:
    egress = Egress(["10.0.0.0/8", "billing.corp"], ports=[80, 443])
    assert [egress.objection(PUBLIC, port) for port in (80, 443)] == [None, None]
    assert egress.objection(PUBLIC, 22) == "on port 22, which is not allowed"
    assert egress.objection("10.0.0.1", 22) is None
    assert egress.objection(PUBLIC, 22, "billing.corp") is None
    with pytest.raises(EgressRefused, match="port 22"):
        egress.check_url(f"http://{PUBLIC}:22/")
    egress.check_url("http://shop.example:22/")  # it may resolve into 10.0.0.0/8: the connect decides
    with pytest.raises(EgressRefused, match="port 22 is not allowed"):
        Egress(ports=[80]).check_url("http://shop.example:22/")


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "10.0.0.0/33", "fd00::/129", "10", "0x7f.1", "300.1.1.1", "http://a/", "a b", "", "*", "*."]
)
def test_an_entry_that_is_neither_a_network_nor_a_name_is_refused_at_the_start(entry: str) -> None:
    with pytest.raises(InvalidField) as refused:
        Egress([entry])
    assert refused.value.field == "allow"
    assert f'"{entry}"' in refused.value.message


def test_a_network_with_bits_after_its_prefix_is_refused_with_the_network_that_was_meant() -> None:
    with pytest.raises(InvalidField, match=r"write 10\.0\.0\.0/8"):
        Egress(["10.0.0.1/8"])


def test_a_port_that_cannot_be_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidField):
        Egress(ports=[0])


def test_the_names_that_are_refused_by_default() -> None:
    assert DENIED_NAMES == ("metadata.google.internal", "metadata", "*.internal")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://user:password@shop.example:8443/a/b?token=secret#x", "https://shop.example:8443/a/b"),
        ("http://a@b@shop.example/?x", "http://shop.example/"),
        ("no url", "(not a URL)"),
        ("http://[::1", "(not a URL)"),
        ("http://shop.example/\u202e\x1b[31m", "http://shop.example/??[31m"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, text: str) -> None:
    assert shown(url) == text


def spellings(number: int) -> st.SearchStrategy[str]:
    """One IPv4 address, written in one to four parts, each decimal, octal or hexadecimal."""

    def written(parts: int, bases: list[str]) -> str:
        heads = [number >> (24 - 8 * place) & 255 for place in range(parts - 1)]
        last = number & ((1 << (8 * (5 - parts))) - 1)
        return ".".join(base.format(part) for base, part in zip(bases, [*heads, last], strict=False))

    base = st.sampled_from(["{}", "0{:o}", "0x{:x}", "0X{:08X}", "000{:o}"])
    return st.builds(written, st.integers(1, 4), st.lists(base, min_size=4, max_size=4))


@given(st.data(), st.integers(0, 2**32 - 1))
def test_every_spelling_of_an_ipv4_address_is_read_as_that_address(data: st.DataObject, number: int) -> None:
    assert read_ipv4(data.draw(spellings(number))) == IPv4Address(number)


@given(st.one_of(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**128 - 1).map(IPv6Address)))
def test_what_the_standard_library_calls_special_is_never_public(address: IPv4Address | IPv6Address) -> None:
    special = (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )
    if special and plain(address) == address:
        assert why_not_public(address) is not None


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_not_public_inside_an_ipv6_address_unless_it_is_itself(number: int) -> None:
    inside = IPv4Address(number)
    assert why_not_public(IPv6Address(f"::ffff:{inside}")) == why_not_public(inside)
    for shape in (f"64:ff9b::{inside}", f"::ffff:0:{inside}", str(IPv6Address(0x2002 << 112 | number << 80))):
        assert why_not_public(IPv6Address(shape)) is not None


@given(st.sampled_from([IPv4Network(n) for n in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16")]), st.data())
def test_no_spelling_of_a_private_address_passes(network: IPv4Network, data: st.DataObject) -> None:
    number = data.draw(st.integers(int(network[0]), int(network[-1])))
    with pytest.raises(EgressRefused):
        Egress().check_url(f"http://{data.draw(spellings(number))}:8080/path")


@given(st.one_of(st.text(), st.text().map("http://{}".format), st.text("01x.:[]@%/\\①。fF7 ").map("http://{}/".format)))
def test_a_text_is_a_canonical_url_or_a_clear_refusal(text: str) -> None:
    try:
        destination = Egress().check_url(text)
    except (InvalidField, EgressRefused):
        return
    assert destination.url.isascii()
    assert Egress().check_url(destination.url) == destination


OPEN = ["10.0.0.0/8", "*.corp"]


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("http://10.1.2.3/", True),
        ("http://10.2.0.1/", False),  # in push.allow, not in the list of the namespace
        (f"http://{PUBLIC}/", False),  # public
        ("http://pay.corp/", True),
        ("http://192.168.0.1/", False),  # in the list of the namespace, not in push.allow
    ],
)
def test_the_list_of_a_namespace_narrows_what_it_may_call(url: str, is_allowed: bool) -> None:
    egress = Egress(OPEN, namespaces={"n": ["10.1.0.0/16", "pay.corp", "192.168.0.0/16"]})
    if is_allowed:
        egress.of("n").check_url(url)
    else:
        with pytest.raises(EgressRefused):
            egress.of("n").check_url(url)
    assert egress.of("m") is egress


def test_a_name_outside_the_list_of_a_namespace_is_judged_by_its_address() -> None:
    narrowed = Egress(OPEN, namespaces={"*": ["10.1.0.0/16", "pay.corp"]}).of("any")
    narrowed.check_url("http://shop.corp/")
    assert narrowed.objection("10.1.0.1", 80, "shop.corp") is None
    assert narrowed.objection("10.2.0.1", 80, "shop.corp") == "outside of namespaces.*.push_allow"
    assert narrowed.objection("10.2.0.1", 80, "pay.corp") is None
    assert narrowed.objection(PUBLIC, 80, "shop.example") == "outside of namespaces.*.push_allow"
    assert narrowed.objection("127.0.0.1", 80, "pay.example") is not None
    only_names = Egress(OPEN, namespaces={"n": ["pay.corp"]}).of("n")
    with pytest.raises(EgressRefused, match=r"namespaces\.n\.push_allow"):
        only_names.check_url("http://shop.corp/")
    with pytest.raises(EgressRefused):
        Egress(OPEN, namespaces={"n": []}).of("n").check_url("http://pay.corp/")


def test_an_entry_of_a_namespace_is_checked_and_named() -> None:
    with pytest.raises(InvalidField) as refused:
        Egress(namespaces={"n": ["10.0.0.1/8"]})
    assert refused.value.field == "namespaces.n.push_allow"


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("http://10.1.2.3/", True),
        ("http://0x0a010203/", True),  # the same address
        ("http://10.2.0.1/", False),
        ("http://[64:ff9b::10.1.2.3]/", False),  # another address, which leads to that one
        (f"http://{PUBLIC}/", False),
        ("http://pay.corp/", True),
        ("http://PAY.corp./", True),
        ("http://a.shop.corp:8080/", True),
        ("http://shop.corp/", False),
        ("http://other.corp/", False),  # it may resolve into the network, but nobody asks the token then
    ],
)
def test_the_list_of_a_token_has_what_it_may_choose(url: str, is_allowed: bool) -> None:
    token = token_list(("10.1.0.0/16", "pay.corp", "*.shop.corp"))
    destination = Egress(["0.0.0.0/0", "::/0"]).check_url(url)
    if is_allowed:
        token.check(destination)
    else:
        with pytest.raises(EgressRefused, match=r"limits\.push_allow of the token"):
            token.check(destination)


def test_a_service_is_in_the_list_of_a_token_by_its_name() -> None:
    token = token_list(("billing", "10.0.0.0/8"))
    token.check_service("Billing")
    for service in ("shop", "10.0.0.1", "billing:2"):
        with pytest.raises(EgressRefused):
            token.check_service(service)
    with pytest.raises(EgressRefused):
        token_list(()).check_service("billing")


def test_an_entry_of_a_token_is_checked() -> None:
    with pytest.raises(InvalidField) as refused:
        check_token_list(["10.0.0.1/8"])
    assert refused.value.field == "push_allow"
