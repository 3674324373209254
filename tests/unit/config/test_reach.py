"""Which addresses a server may listen on, who may call a dialect there, and what is said if not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dueline.config.load import ConfigError, load
from dueline.config.reach import open_addresses
from dueline.config.settings import Settings
from dueline.dialects.settings import ForeignSettings
from dueline.dialects.table import DIALECTS
from dueline.server.listeners import addresses

TLS = '[server.tls]\ncert = "c.pem"\nkey = "k.pem"\n'
PROTECTED = f'[server]\nlisten = "10.0.0.1:9277"\nauth = "tokens"\n{TLS}'
FOREIGN = tuple(spec.name for spec in DIALECTS if issubclass(spec.settings, ForeignSettings))


def loaded(tmp_path: Path, toml: str) -> Settings:
    file = tmp_path / "dueline.toml"
    file.write_text(toml)
    return load(file=file)


def suggested(error: BaseException) -> str:
    """The lines of configuration in an error."""
    return "\n".join(line.strip() for line in str(error).split("\n") if line.startswith("    "))


def test_tokens_and_tls_together_open_an_address_to_others(tmp_path: Path) -> None:
    assert loaded(tmp_path, PROTECTED).server.listen == "10.0.0.1:9277"
    for half in (f'[server]\nlisten = "10.0.0.1:9277"\n{TLS}', '[server]\nlisten = "10.0.0.1:9277"\nauth = "tokens"\n'):
        with pytest.raises(ConfigError, match="needs tokens and TLS"):
            loaded(tmp_path, half)


@pytest.mark.parametrize(
    "toml",
    [
        '[server]\nlisten = "0.0.0.0:9277"',
        '[server]\nlisten = "[::]:80"\nauth = "tokens"',
        f'[server]\nlisten = "10.0.0.1:9277"\n{TLS}',
        '[dialects.camellia]\nlisten = "0.0.0.0:8080"',
        '[dialects.camellia]\nlisten = "0.0.0.0:8080"\nauth = "network"\nnetworks = ["10.0.0.0/8", "fe80::/10"]',
    ],
)
def test_the_lines_that_an_error_prints_make_it_right(tmp_path: Path, toml: str) -> None:
    with pytest.raises(ConfigError, match=r"--insecure \(server\.insecure = true\)") as refused:
        loaded(tmp_path, toml)
    lines = suggested(refused.value)
    listens = [part["listen"] for part in tomllib.loads(toml).values() if "listen" in part]
    settings = loaded(tmp_path, lines)
    assert settings.server.auth == "tokens"
    assert all(listen in lines for listen in listens)
    if "camellia" in toml:
        assert "0.0.0.0:8080" in addresses(settings)
    assert loaded(tmp_path, "[server]\ninsecure = true\n" + toml.replace("[server]\n", "")) is not None


@pytest.mark.parametrize("listen", ["", 'listen = "10.0.0.1:8080"\n'])
def test_a_dialect_for_everyone_is_not_for_other_machines(tmp_path: Path, listen: str) -> None:
    dialect = f'[dialects.ouqiang]\n{listen}auth = "none"\n'
    with pytest.raises(ConfigError, match=r'dialects\.ouqiang\.auth = "none": others could reach 10\.0\.0\.1'):
        loaded(tmp_path, PROTECTED + dialect)
    assert loaded(tmp_path, PROTECTED.replace("auth", "insecure = true\nauth") + dialect) is not None
    here = '[dialects.ouqiang]\nlisten = "127.0.0.1:8080"\nauth = "none"\n'
    assert loaded(tmp_path, PROTECTED + here) is not None


def test_a_dialect_that_is_not_served_opens_no_address(tmp_path: Path) -> None:
    for key in ("enabled = false", ""):
        assert (
            loaded(tmp_path, f'[server]\nauth = "tokens"\n[dialects.ouqiang]\nlisten = "0.0.0.0:1"\n{key}') is not None
        )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[dialects.ouqiang]\nauth = "path"', r'dialects\.ouqiang\.auth = "path": a token would have no effect'),
        ('[dialects.exfe]\nauth = "header"', r'dialects\.exfe\.auth = "header": a token would have no effect'),
        ('[dialects.ouqiang]\nauth = "token"', r"dialects\.ouqiang\.auth: must be one of"),
        ('[dialects.exfe]\nauth = "network"\nnetworks = ["10.0.0.0/8"]', r"dialects\.exfe\.listen: .* of its own"),
        ('[dialects.exfe]\nauth = "network"\nlisten = "127.0.0.1:1"', r"dialects\.exfe\.networks: .* at least one"),
        ('[dialects.ouqiang]\nnetworks = ["10.0.0.0/8"]', r"dialects\.ouqiang\.networks: has no effect without"),
        *(
            (
                f'[dialects.ouqiang]\nauth = "network"\nlisten = "127.0.0.1:1"\nnetworks = ["{network}"]',
                rf"dialects\.ouqiang\.networks: .*{words}",
            )
            for network, words in (("10.0.0.1/8", "host bits"), ("home", "home"), ("::/0", "every address"))
        ),
        (
            '[dialects.ouqiang]\nauth = "network"\nlisten = "127.0.0.1:9277"\nnetworks = ["10.0.0.0/8"]',
            r"dialects\.ouqiang\.listen: .* another address than server\.listen",
        ),
        (
            '[dialects.ouqiang]\nauth = "network"\nlisten = "127.0.0.1:1"\nnetworks = ["10.0.0.0/8"]\n'
            '[dialects.youzan]\nlisten = "127.0.0.1:1"',
            r"dialects\.youzan\.networks: must be the same as dialects\.ouqiang\.networks",
        ),
    ],
)
def test_a_choice_without_its_effect_is_refused(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, toml)


def test_with_tokens_a_dialect_is_off_until_it_says_who_may_call(tmp_path: Path) -> None:
    assert load().callers() == dict.fromkeys(FOREIGN, "none")
    assert addresses(load()) == {"127.0.0.1:9277": ("native", *FOREIGN)}
    tokens = loaded(
        tmp_path,
        '[server]\nauth = "tokens"\n[dialects.exfe]\nauth = "none"\n[dialects.youzan]\nauth = "path"\nenabled = false\n'
        '[dialects.spring]\nauth = "header"\n'
        '[dialects.camellia]\nauth = "network"\nlisten = "127.0.0.1:1"\nnetworks = ["127.0.0.1"]\n',
    )
    chosen = {"camellia": "network", "spring": "header", "exfe": "none"}
    assert tokens.callers() == dict.fromkeys(FOREIGN, "off") | chosen
    assert addresses(tokens) == {"127.0.0.1:9277": ("native", "spring", "exfe"), "127.0.0.1:1": ("camellia",)}


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[server]\nlisten = "0.0.0.0:9277"\ninsecure = true', ["0.0.0.0:9277 without tokens and TLS"]),
        (f'[server]\nlisten = "[::]:80"\ninsecure = true\n{TLS}', ["[::]:80 without tokens"]),
        ('[server]\nlisten = "h:1"\ninsecure = true\nauth = "tokens"', ["h:1 without TLS"]),
        (
            '[server]\ninsecure = true\n[dialects.camellia]\nlisten = "0.0.0.0:8080"',
            ["0.0.0.0:8080 without tokens and TLS"],
        ),
        ("[server]\ninsecure = true", []),
        (PROTECTED, []),
    ],
)
def test_an_address_that_is_open_to_others_is_named_with_what_is_missing(
    tmp_path: Path, toml: str, said: list[str]
) -> None:
    assert open_addresses(loaded(tmp_path, toml)) == said
