"""Every script says what it does, what it touches and where it ends; its includes exist and are used."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from dueline.store.valkey.keys import LETTERS
from dueline.store.valkey.scripts import OPERATIONS, load_scripts, source_of

LUA = Path(__file__).parents[2] / "src" / "dueline" / "store" / "lua"
READING = {"read", "list", "stats", "stored_ids", "groups", "forecast"}
REFUSED_WHEN_FULL = {"send", "append", "edit"}
OWN_KEYS = {
    "directory": "topics seen config agenda",
    "push": "state log",
    "audit": "state log",
    "charts": "state ring names",
    "tokens": "records changes ends confirmed seen",
    "epochs": "meta epochs closed topics seen",
    "events": "stream state members",
    "workers": "records seen",
    "forecast": "s d of every partition",
}


def test_there_is_one_file_per_operation() -> None:
    assert {path.stem for path in LUA.glob("*.lua")} == set(OPERATIONS)


def faults_of_header(name: str) -> list[str]:
    """What is wrong with the comment at the top of a script."""
    header = list(itertools.takewhile(lambda line: line.startswith("--"), source_of(name).splitlines()[1:]))
    found = {match[1]: match[2] for line in header if (match := re.match(r"-- ([A-Z]+) +(.+)", line))}
    checks = {
        "its first line says its purpose": bool(re.fullmatch(rf"-- {name}: .+", header[0])),
        "KEYS, ARGV, RETURN and BOUND follow, in this order": list(found) == ["KEYS", "ARGV", "RETURN", "BOUND"],
        "KEYS names its keys": found.get("KEYS", "").startswith(OWN_KEYS.get(name, " ".join(LETTERS))),
    }
    return [f"{name}: {rule}" for rule, holds in checks.items() if not holds]


def test_every_script_has_a_whole_header() -> None:
    assert [fault for name in OPERATIONS for fault in faults_of_header(name)] == []


def test_every_script_says_what_it_does_on_a_full_store() -> None:
    """Reading scripts never write; of the others, those that need no room run when memory is full."""

    def flags(name: str) -> str:
        return " flags=no-writes" if name in READING else "" if name in REFUSED_WHEN_FULL else " flags=allow-oom"

    assert [name for name in OPERATIONS if source_of(name).splitlines()[0] != f"#!lua{flags(name)}"] == []


def test_every_included_file_exists_and_every_file_is_included() -> None:
    included = {piece for name in OPERATIONS for piece in re.findall(r"^-- include (\w+)$", source_of(name), re.M)}
    assert included == {path.stem for path in (LUA / "lib").glob("*.lua")}


def test_no_loaded_script_still_includes_a_file() -> None:
    assert [name for name, script in load_scripts().items() if "-- include" in script.source] == []


def test_numbers_become_text_only_by_the_one_function_that_keeps_their_digits() -> None:
    assert [path.name for path in LUA.rglob("*.lua") if "tostring(" in path.read_text()] == []


def test_no_script_walks_what_has_no_bound() -> None:
    unbounded = re.compile(r"\bcall\('(KEYS|SCAN|HGETALL|HKEYS|HVALS|SMEMBERS|SORT|FLUSHALL)'")
    walking = {path.name for path in LUA.rglob("*.lua") if unbounded.search(path.read_text())}
    assert walking == {"stored_ids.lua"}, "it counts before it walks"
