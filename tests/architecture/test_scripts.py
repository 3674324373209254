"""Every script says what it does, what it touches and where it ends; its includes exist and are used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dueline.store.valkey.keys import LETTERS
from dueline.store.valkey.scripts import OPERATIONS, load_scripts, source_of

LUA = Path(__file__).parents[2] / "src" / "dueline" / "store" / "lua"
READING = {"read", "list", "stats"}
REFUSED_WHEN_FULL = {"send", "append", "edit", "single_send"}
OWN_KEYS = {"directory": "topics seen config agenda", "push": "state log", "single_send": "m j r s"}


def test_there_is_one_file_per_operation() -> None:
    assert {path.stem for path in LUA.glob("*.lua")} == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_header_of_a_script_is_whole(name: str) -> None:
    lines = source_of(name).splitlines()
    header: list[str] = []
    for line in lines[1:]:
        if not line.startswith("--"):
            break
        header.append(line)
    assert re.fullmatch(rf"-- {name}: .+", header[0]), "the first line says its purpose"
    found = {match[1]: match[2] for line in header if (match := re.match(r"-- ([A-Z]+) +(.+)", line))}
    assert list(found) == ["KEYS", "ARGV", "RETURN", "BOUND"]
    assert found["KEYS"].startswith(OWN_KEYS.get(name, " ".join(LETTERS)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_script_is_flagged_for_a_full_store_as_it_must_be(name: str) -> None:
    shebang = source_of(name).splitlines()[0]
    wanted = (
        "#!lua flags=no-writes"
        if name in READING
        else "#!lua"
        if name in REFUSED_WHEN_FULL
        else "#!lua flags=allow-oom"
    )
    assert shebang == wanted


def test_every_included_file_exists_and_every_file_is_included() -> None:
    included = {piece for name in OPERATIONS for piece in re.findall(r"^-- include (\w+)$", source_of(name), re.M)}
    assert included == {path.stem for path in (LUA / "lib").glob("*.lua")}
    assert all("-- include" not in script.source for script in load_scripts().values())


def test_numbers_become_text_only_by_the_one_function_that_keeps_their_digits() -> None:
    for path in LUA.rglob("*.lua"):
        assert "tostring(" not in path.read_text(), path.name


def test_no_script_walks_what_has_no_bound() -> None:
    for path in LUA.rglob("*.lua"):
        words = set(re.findall(r"redis\.call\('(\w+)'", path.read_text()))
        assert not words & {"KEYS", "SCAN", "HGETALL", "HKEYS", "HVALS", "SMEMBERS", "SORT", "FLUSHALL"}, path.name
