"""The reference pages are made from the code, name all that a program imports, and have words for each of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dueline.worker
from dueline.testing import pytest_plugin
from tools.docs import client as client_docs
from tools.docs import guards as guards_docs
from tools.docs import metrics as metrics_docs
from tools.docs import testing as testing_docs
from tools.docs import worker as worker_docs

DOCS = Path(__file__).parents[2] / "docs"

every_page = pytest.mark.parametrize(
    ("name", "page"),
    [
        ("python-reference.md", client_docs.page),
        ("worker-reference.md", worker_docs.page),
        ("testing-reference.md", testing_docs.page),
    ],
)


@every_page
def test_a_reference_is_made_from_the_code(name: str, page: Callable[[], str]) -> None:
    assert (DOCS / name).read_text() == page(), "run `make docs`"


@every_page
def test_everything_on_a_reference_is_described(name: str, page: Callable[[], str]) -> None:
    blocks = page().split("```text\n")[1:]
    silent = [
        block.split("\n")[0] for block in blocks if not block.partition("```\n")[2].strip().split("\n#")[0].strip()
    ]
    assert silent == []
    titles = page().split("\n### ")[1:]
    assert [title for title in titles if title.strip().count("\n") == 0] == []


def test_the_page_of_metrics_is_made_from_their_table() -> None:
    assert (DOCS / "metrics.md").read_text() == metrics_docs.page(), "run `make docs`"


def test_the_page_of_guards_is_made_from_their_table() -> None:
    assert (DOCS / "guards.md").read_text() == guards_docs.page(), "run `make docs`"


def test_the_worker_s_reference_names_all_that_a_program_imports() -> None:
    page = worker_docs.page()
    types_only = {"CallNext", "Middleware"}
    assert [name for name in dueline.worker.__all__ if name not in types_only and f"### {name}\n" not in page] == []
    assert "call_next" in page


def test_the_testing_kit_s_reference_names_every_fixture() -> None:
    fixtures = [name for name in vars(pytest_plugin) if name.startswith("dueline_")]
    assert (len(fixtures), [name for name in fixtures if f"| `{name}` |" not in testing_docs.page()]) == (7, [])
