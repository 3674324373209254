"""What must not stand in this repository, and pages that are made from the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tools.docs.lifecycle import page

ROOT = Path(__file__).parents[2]


def texts() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    found: dict[str, str] = {}
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.suffix not in {".png", ".ico", ".woff2"}:
            found[name] = path.read_text(errors="replace")
    return found


def test_nothing_depends_on_a_place_outside_the_repository() -> None:
    outside = re.compile(r"\.\./" + r"shared|/work/" + r"shared")
    assert [name for name, text in texts().items() if outside.search(text)] == []


def test_every_document_that_is_named_is_in_the_repository() -> None:
    """Links of pages, files such as docs/push.md in code and comments, and numbered rules that only others have."""
    missing: list[str] = []
    for name, text in texts().items():
        here = (ROOT / name).parent
        links = re.findall(r"\]\(([^)\s:#]+)(?:#[^)]*)?\)", text) if name.endswith(".md") else []
        missing += [f"{name} links to {link}" for link in links if not (here / link).exists()]
        pages = re.findall(r"[\w./-]*\w\.md\b", text)
        places = (here, ROOT, ROOT / "docs", ROOT / "docs" / "dialects")
        missing += [f"{name} names {page}" for page in pages if not any((place / page).exists() for place in places)]
        missing += [f"{name} names {number}" for number in re.findall(r"\b(?:rule|section|promise) \d+\b", text)]
    assert missing == []


def test_the_guide_names_every_package() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    tables = guide[guide.index("## Where things are") : guide.index("## Vocabulary")]
    folders = [path.parent.name for place in ("src/dueline", "tests") for path in (ROOT / place).glob("*/__init__.py")]
    assert [name for name in (*folders, "unit") if f"`{name}`" not in tables] == []


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get: lower case, words joined by hyphens, no punctuation, links as text."""
    found: set[str] = set()
    fenced = False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("#") and not fenced:
            title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip().lower())
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def test_every_anchor_of_a_link_is_a_heading_of_its_page() -> None:
    missing: list[str] = []
    pages = {name: text for name, text in texts().items() if name.endswith(".md")}
    for name, text in pages.items():
        for link, anchor in re.findall(r"\]\(([^)\s:#]*)#([^)\s]+)\)", text):
            page = ((ROOT / name).parent / link).resolve() if link else ROOT / name
            if page.suffix == ".md" and page.exists() and anchor not in anchors(page.read_text()):
                missing.append(f"{name} links to {link}#{anchor}")
    assert missing == []


def test_no_package_index_is_named() -> None:
    hosts = re.compile(
        "|".join(("pypi" + r"\.org", "pythonhosted" + r"\.org", "npmjs" + r"\.(?:org|com)", "crates" + r"\.io"))
    )
    assert [name for name, text in texts().items() if hosts.search(text)] == []


def test_the_page_of_states_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "lifecycle.md").read_text() == page(), "run `make docs`"


def test_every_page_but_the_plan_is_reached_from_the_index() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"index.md"}
    linked: set[str] = set()
    todo = ["index.md"]
    while todo:
        name = todo.pop()
        folder = (ROOT / "docs" / name).parent
        for target in re.findall(r"\]\(([^)#:]+\.md)", (ROOT / "docs" / name).read_text()):
            path = (folder / target).resolve()
            if path.is_relative_to(ROOT / "docs"):
                page_name = path.relative_to(ROOT / "docs").as_posix()
                if page_name not in linked:
                    linked.add(page_name)
                    todo.append(page_name)
    assert pages - linked == {"plan.md"}  # for the people who work on Dueline, not for its users


def test_the_prose_of_the_docs_is_wrapped_at_100() -> None:
    """Code, tables and indented examples keep their lines."""
    long: list[str] = []
    for name, text in texts().items():
        fenced = False
        for number, line in enumerate(text.split("\n") if name.endswith(".md") else (), 1):
            fenced ^= line.lstrip().startswith("```")
            if len(line) > 100 and not fenced and not line.startswith(("|", "    ")):
                long.append(f"{name}:{number}")
    assert long == []
