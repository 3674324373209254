"""Settings from flags, variables, file and defaults; and what is said when something is wrong with them."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec
import pytest

from dueline.config.durability import durability_of
from dueline.config.load import ConfigError, load, store_of
from dueline.config.settings import NamespaceLimits, Server, Settings, StaticInstance, Store
from dueline.config.table import keys
from dueline.engine.limits import Limits
from dueline.engine.policy import Ladder
from dueline.server.start_checks import push_refusal
from dueline.store.valkey.tls import StoreTls
from tools.docs.config import page


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "dueline.toml"
    file.write_text(text)
    return file


def test_without_anything_the_defaults_hold() -> None:
    assert load() == Settings()


def test_flags_win_over_variables_over_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, '[server]\nlisten = "127.0.0.1:1"\nworkers = 2\ndrain_ms = 7\n[store]\ndata = "/a"\n')
    env = {"DUELINE_SERVER__LISTEN": "127.0.0.1:2", "DUELINE_SERVER__WORKERS": "3", "DUELINE_URL": "http://elsewhere"}
    settings = load({"server.listen": "127.0.0.1:3", "store.url": None}, env, file)
    assert settings == Settings(server=Server(listen="127.0.0.1:3", workers=3, drain_ms=7), store=Store(data="/a"))


def test_a_variable_may_be_written_as_people_write() -> None:
    env = {"DUELINE_SERVER__INSECURE": "Yes", "DUELINE_STORE__URL": "", "DUELINE_LIMITS__MAX_PULL": "7"}
    assert load(env=env) == Settings(server=Server(insecure=True), limits=Limits(max_pull=7))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[server]\nlistne = "x"', r"unknown key server\.listne; did you mean server\.listen\?"),
        ("[srver]\nworkers = 1", r"unknown key srver; did you mean server\?|did you mean server\.workers\?"),
        ("workers = 1", r"unknown key workers; did you mean server\.workers\?"),
        ("[store]\nworkers = 1", r"unknown key store\.workers; did you mean server\.workers\?"),
        ('[server]\nworkers = "4"', r"server\.workers: must be a whole number, not '4' \(from .*dueline\.toml\)"),
        ("[server]\nworkers = 0", r"server\.workers: must be at least 1, not 0"),
        ("[server]\ninsecure = 1", r"server\.insecure: must be true or false, not 1"),
        ('[log]\nlevel = "loud"', r'log\.level: must be one of "debug", "info", "warning", "error", not \'loud\''),
        (
            "[limits]\nmax_body_bytes = 99999999",
            r"limits\.max_body_bytes: must be at most 4194304, not 99999999",
        ),
        ("[server\n", r"dueline\.toml: is not TOML"),
        ("server = " + "[" * 100_000, r"dueline\.toml: is not TOML"),
        ("server = 4", r"unknown key server"),
        ("[server]\nlisten = {}", r"server\.listen: must be a string"),
        ('[store]\nurl = "http://x"', r"store\.url: must begin with one of"),
        ('[store]\nurl = "redis://x"\ndurability = "fsync"', r'"fsync" is possible only with the embedded'),
        ('[store]\nurl = "redis://x"\ndegraded = "accept"', r'store\.degraded: "accept" is possible only with'),
        ('[store]\nurl = "redis://x"\nsentinel_password = "p"', r"store\.sentinel_password: only a store\.url of"),
        ('[store]\nurl = "redis+sentinel://x,y"', r"store\.url: name the service that the sentinels watch"),
        ('[store]\nurl = "redis+cluster://x,y/2"', r"store\.url: a Cluster has only the database 0"),
        (
            '[store]\nurl = "redis://x"\n[store.tls]\nca = "ca.pem"',
            r"store\.tls\.ca: has no effect, because store\.url does not use TLS: write store\.url as rediss://HOST:PORT",
        ),
        (
            "[store.tls]\nverify = false",
            r"store\.tls\.verify: has no effect, because the embedded store uses no network",
        ),
        (
            '[store]\nurl = "rediss://x"\n[store.tls]\ncert = "c.pem"',
            r"store\.tls\.key: is missing; store\.tls\.cert al",
        ),
        (
            '[store]\nurl = "rediss://x"\n[store.tls]\nkey = "k.pem"',
            r"store\.tls\.cert: is missing; store\.tls\.key al",
        ),
        (
            '[store]\nurl = "valkeys://x"\n[store.tls]\nca = "a"\nverify = false',
            r"store\.tls\.ca: has no effect with store\.tls\.verify = false",
        ),
        (
            '[store]\nurl = "rediss://x"\n[store.tls]\nserver_name = "a b"',
            r"store\.tls\.server_name: must be a string that matches",
        ),
        (
            '[store]\nurl = "rediss://x?ssl_cert_reqs=none"',
            r"store\.url: the option ssl_cert_reqs .* set store\.tls\.veri",
        ),
        (
            '[store]\nurl = "rediss://x?db=1&ssl_ca_certs=a"',
            r"store\.url: the option ssl_ca_certs .*: set store\.tls\.ca",
        ),
        ('[store]\nurl = "rediss://x?ssl_ciphers=a"', r"store\.url: the option ssl_ciphers .*: remove it"),
        ('[store]\ndurability = "standard"', r'the embedded store is "fsync", not "standard"'),
        ('[server]\nlisten = "9277"', r"server\.listen: must be HOST:PORT"),
        ('[server]\nlisten = "127.0.0.1:70000"', r"server\.listen: must be HOST:PORT"),
        ('[server]\nhosts = ["http://queue.corp"]', r"server\.hosts: must be a name .*, not 'http://queue\.corp'"),
        ('[server]\nhosts = ["queue.corp:9277"]', r"server\.hosts: .* without a port"),
        ('[server]\nhosts = ["*"]', r"server\.hosts: must be a name .*, not '\*'"),
        ('[server]\norigins = ["queue.corp"]', r"server\.origins: must be an origin .*, not 'queue\.corp'"),
        ('[server]\norigins = ["https://queue.corp/"]', r"server\.origins: .* without a path"),
    ],
)
def test_a_wrong_file_is_refused_with_the_name_of_the_key(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(file=written(tmp_path, toml))


def test_a_missing_file_and_an_unknown_variable_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(file=tmp_path / "nothing.toml")
    with pytest.raises(
        ConfigError, match=r"unknown variable DUELINE_SERVER__LISEN; did you mean DUELINE_SERVER__LISTEN\?"
    ):
        load(env={"DUELINE_SERVER__LISEN": "x"})


def test_a_secret_is_not_repeated_in_a_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(file=written(tmp_path, '[store]\nurl = ["redis://:hunter2@x"]'))
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("listen", ["0.0.0.0:9277", "[::]:9277", "10.0.0.1:80", "example.org:80"])
def test_an_address_that_others_can_reach_needs_insecure(listen: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        load({"server.listen": listen})
    assert load({"server.listen": listen, "server.insecure": True}).server.listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.1.2.3:80", "[::1]:9277", "localhost:9277"])
def test_an_address_of_this_machine_needs_nothing(listen: str) -> None:
    assert load({"server.listen": listen}).server.listen == listen


@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+cluster", "valkeys+cluster"])
def test_tls_towards_the_store_is_set_for_every_spelling_of_its_url(scheme: str) -> None:
    env = {"DUELINE_STORE__URL": f"{scheme}://x", "DUELINE_STORE__TLS__CA": "a.pem", "DUELINE_URL": "http://elsewhere"}
    assert load(env=env).store == Store(url=f"{scheme}://x", tls=StoreTls(ca="a.pem"))


def test_a_program_without_a_configuration_reads_the_variables_of_the_stores_tls() -> None:
    env = {
        "DUELINE_STORE__TLS__SERVER_NAME": "store.corp",
        "DUELINE_STORE__TLS__VERIFY": "no",
        "DUELINE_SERVER__X": "1",
    }
    assert store_of("rediss://h", env).tls == StoreTls(server_name="store.corp", verify=False)
    with pytest.raises(ConfigError, match="did you mean DUELINE_STORE__TLS__CA"):
        store_of("rediss://h", {"DUELINE_STORE__TLS__CAA": "a.pem"})


def test_connections_to_the_store_use_at_least_tls_1_2_and_check_the_certificate() -> None:
    context = StoreTls().context()
    found = (context.minimum_version, context.verify_mode, context.check_hostname)
    assert found == (ssl.TLSVersion.TLSv1_2, ssl.CERT_REQUIRED, True)


def test_a_ladder_is_a_list_of_durations() -> None:
    dialects = load({"dialects.exfe.retry": "1h30m, 1w", "dialects.spring.retry": "off"}).dialects
    assert dialects.exfe.ladder() == Ladder((5_400_000, 604_800_000))
    assert dialects.spring.ladder() is None


@pytest.mark.parametrize("text", ["", "soon", "5s,", "5s; 6s", "9999999d", "1h" * 40, ", ".join(["1s"] * 33)])
def test_a_ladder_that_cannot_be_kept_is_refused_at_start(text: str) -> None:
    with pytest.raises(ConfigError, match=r"dialects\.exfe\.retry: "):
        load({"dialects.exfe.retry": text})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("requests_per_s = 0", "requests_per_s"),
        ("max_pols = 3", "unknown field `max_pols`"),
        ('max_polls = "many"', "max_polls"),
        ("max_pending_jobs = 0", "max_pending_jobs"),
    ],
)
def test_a_limit_of_a_namespace_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "dueline.toml"
    file.write_text(f"[namespaces.shop]\n{text}\n")
    with pytest.raises(ConfigError, match=r"namespaces: must be a table") as refused:
        load(file=file)
    assert why in str(refused.value)


def test_a_namespace_has_its_own_limits_and_a_list_of_what_its_pushes_may_call(tmp_path: Path) -> None:
    file = tmp_path / "dueline.toml"
    file.write_text('[namespaces."*"]\nmax_polls = 3\n[namespaces.shop]\npush_allow = ["10.0.0.1/8"]\n')
    settings = load(file=file)
    assert settings.namespaces == {
        "*": NamespaceLimits(max_polls=3),
        "shop": NamespaceLimits(push_allow=("10.0.0.1/8",)),
    }
    assert (push_refusal(settings) or "").startswith("namespaces.shop.push_allow: ")


def test_every_key_has_a_meaning_and_a_default_within_its_own_bounds() -> None:
    for key in keys().values():
        assert key.meaning.endswith("."), key.path
        assert msgspec.convert(key.default, key.type) == key.default


def test_settings_survive_the_way_to_a_worker() -> None:
    settings = load({"server.listen": "127.0.0.1:0", "store.url": "redis://x"})
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings


def test_the_docs_page_is_the_table() -> None:
    assert Path("docs/config.md").read_text() == page(), "run `make docs`"


def test_push_and_discovery_are_read_as_the_design_writes_them(tmp_path: Path) -> None:
    toml = """
[push]
allow = ["127.0.0.0/8", "10.0.0.0/8"]
ports = [80, 443]
[discovery.static]
billing = [{ url = "http://127.0.0.1:9024", tasks = "task1, task2" }]
mail = [{ url = "http://127.0.0.1:9025" }]
[discovery.eureka]
url = "http://127.0.0.1:8761/eureka"
"""
    settings = load(file=written(tmp_path, toml))
    assert (settings.push.allow, settings.push.ports) == (("127.0.0.0/8", "10.0.0.0/8"), (80, 443))
    assert settings.discovery.static == {
        "billing": (StaticInstance("http://127.0.0.1:9024", "task1, task2"),),
        "mail": (StaticInstance("http://127.0.0.1:9025"),),
    }
    assert settings.discovery.eureka.url == "http://127.0.0.1:8761/eureka"
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings


def test_lists_come_from_the_environment_with_commas() -> None:
    settings = load(env={"DUELINE_PUSH__ALLOW": "127.0.0.0/8, *.corp", "DUELINE_PUSH__PORTS": "80,8443"})
    assert (settings.push.allow, settings.push.ports) == (("127.0.0.0/8", "*.corp"), (80, 8443))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[push]\nports = [0]", r"push\.ports: must be a list of whole numbers"),
        ('[push]\nallow = "10.0.0.0/8"', r"push\.allow: must be a list of strings"),
        ("[push]\nper_host = 0", r"push\.per_host: must be at least 1, not 0"),
        ('[push]\nuser_agent = "a\\nb"', r"push\.user_agent: must be a string that matches"),
        ('[discovery]\nstatic = ["http://x"]', r"discovery\.static: must be a table"),
        ('[discovery.static]\na = [{ url = "ftp://x" }]', r"discovery\.static: must be a table"),
        ('[discovery.static]\na = [{ uri = "http://x" }]', r"discovery\.static: must be a table"),
        ('[discovery.eureka]\nurl = "eureka"', r"discovery\.eureka\.url: must be a string that matches \^https"),
        ("[discovery.eureka]\nprefer_id = true", r"did you mean discovery\.eureka\.prefer_ip"),
    ],
)
def test_what_push_and_discovery_cannot_be_is_refused(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(file=written(tmp_path, toml))


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("redis://h", "standard"),
        ("unix:///v.sock", "standard"),
        ("redis+sentinel://h/jobs", "replicated"),
        ("rediss+cluster://h", "replicated"),
    ],
)
def test_a_success_survives_a_failover_by_default_where_there_can_be_one(url: str, level: str) -> None:
    standard = {"DUELINE_STORE__DURABILITY": "standard"}
    assert durability_of(load({"store.url": url}).store) == durability_of(store_of(url, {})) == level
    assert durability_of(load({"store.url": url}, standard).store) == "standard"
    assert durability_of(store_of(url, standard)) == "standard"


def test_the_embedded_store_writes_to_disk() -> None:
    assert durability_of(load().store) == "fsync"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DURABILITY", "fsync", '"fsync" is possible only with the embedded store'),
        ("DURABILITY", "often", r"a DUELINE_STORE__ variable cannot be used: .*durability"),
        ("DEGRADED", "accept", r'"accept" is possible only with store\.durability = "replicated"'),
    ],
)
def test_what_a_program_without_a_configuration_says_about_its_store_is_checked(
    name: str, value: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        store_of("redis://h", {f"DUELINE_STORE__{name}": value})
    assert store_of("redis+cluster://h", {"DUELINE_STORE__DEGRADED": "accept"}).degraded == "accept"
