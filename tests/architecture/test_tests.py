"""Rules about the tests themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
RUNNERS = ("run", "run_until_complete")  # asyncio.run, uvloop.run, Runner.run, a kit's own


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """Every module of the tests, parsed."""
    return [(path.relative_to(TESTS).as_posix(), ast.parse(path.read_text())) for path in sorted(TESTS.rglob("*.py"))]


def own_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Everything inside, but not what is inside the functions there."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_statements(child)


def nested_tests(module: ast.Module) -> Iterator[str]:
    """Tests that run a coroutine function which is nested in them."""
    for test in ast.walk(module):
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        nested = {one.name for one in own_statements(test) if isinstance(one, ast.AsyncFunctionDef)}
        for call in ast.walk(test):
            if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in RUNNERS:
                names = {name.id for given in call.args for name in ast.walk(given) if isinstance(name, ast.Name)}
                if names & nested:
                    yield test.name


def replaced_private_attributes(module: ast.Module) -> Iterator[str]:
    """Assignments to a private attribute, or below one, of anything but `self`; and patches of one."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            first, *names = ast.unparse(node).split(".")
            if any(is_private(name) for name in (names[1:] if first in ("self", "cls") else names)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "patch", "patch.object")):
            texts = [str(given.value) for given in node.args if isinstance(given, ast.Constant)]
            if any(is_private(name) for text in texts for name in text.split(".")):
                yield ast.unparse(node)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


# Its subject is a loop in virtual time, which a plain test drives from outside.
OWN_LOOPS = {"unit/testing/test_plugin_queue.py"}


def test_async_tests_are_async_functions_and_not_nested_in_plain_ones() -> None:
    found = [f"{path}::{name}" for path, module in modules() if path not in OWN_LOOPS for name in nested_tests(module)]
    assert found == [], "write `async def test_...`; tests/kit/async_tests.py runs it"


def test_no_test_replaces_a_private_attribute() -> None:
    found = [f"{path}: {text}" for path, module in modules() for text in replaced_private_attributes(module)]
    assert found == [], "give the object what the test needs when it is made, by an argument of its constructor"


def test_the_rules_about_tests_find_what_they_forbid() -> None:
    nested = "def test_a():\n    async def test(): ...\n    asyncio.run(test())\ndef test_b():\n    run(1)"
    assert list(nested_tests(ast.parse(nested))) == ["test_a"]
    replaced = "a._b = 1\na._b.c = 2\nself._b = 3\nself._b.c = 4\na.b = 5\nmonkeypatch.setattr(a, '_b', 6)"
    assert list(replaced_private_attributes(ast.parse(replaced))) == [
        *("a._b", "a._b.c", "monkeypatch.setattr(a, '_b', 6)"),
    ]
