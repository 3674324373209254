"""docs/testing.md and docs/integrations.md are executed: every block is a file, and the files do what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dueline.testing.server import PrivateServer

from .processes import running

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:9277"


def written(page: str, folder: Path, url: str = ADDRESS) -> list[str]:
    """Put the page's files into a folder; their names. Every Python block names its file."""
    text = (ROOT / "docs" / page).read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python")
    for name, content in blocks:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content.replace(ADDRESS, url))
    return [name for name, _ in blocks]


def test_the_tests_on_the_page_about_testing_are_green(tmp_path: Path) -> None:
    names = written("testing.md", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    command += ["-W", "ignore:Using `httpx`"]  # Starlette's test client warns of its own dependency
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout
    assert "9 passed" in ran.stdout
    assert len(names) == 8


@pytest.fixture
def files(tmp_path: Path, dueline_server: PrivateServer) -> Path:
    written("integrations.md", tmp_path, dueline_server.url)
    return tmp_path


USE_FASTAPI = """
from fastapi.testclient import TestClient
import shop_fastapi
with TestClient(shop_fastapi.app) as http:
    print(http.post("/orders/7").json())
"""

USE_MOUNTED = """
from fastapi.testclient import TestClient
import shop_mounted
with TestClient(shop_mounted.app, client=("127.0.0.1", 1)) as http:
    print(http.get("/queue/v1/info").json()["durability"])
"""

USE_DJANGO = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
import django
django.setup()
from django.test import RequestFactory
from shop.views import place
print(place(RequestFactory().post("/"), 7).content.decode())
"""

USE_FLASK = """
import shop_flask
print(shop_flask.create_app().test_client().post("/orders/7").text)
"""


@pytest.mark.parametrize(
    ("program", "shown"),
    [(USE_FASTAPI, "created"), (USE_MOUNTED, "fsync"), (USE_DJANGO, "placed"), (USE_FLASK, "created")],
    ids=["fastapi", "mounted", "django", "flask"],
)
def test_an_application_on_the_page_answers(
    files: Path, dueline_server: PrivateServer, program: str, shown: str
) -> None:
    with running(files, ["-c", program], FLASK_DUELINE_URL=dueline_server.url, **where(program, dueline_server)) as ran:
        ran.until(shown)
        assert ran.process.wait(30) == 0, ran.lines
    if shown != "fsync":
        with dueline_server.client() as client:
            assert client.get("order.close", "close-7").state == "scheduled"


def where(program: str, server: PrivateServer) -> dict[str, str]:
    """A mounted server takes DUELINE_ variables for its own."""
    return {} if program is USE_MOUNTED else {"DUELINE_URL": server.url}


MANAGE = """
import os, sys
sys.path.insert(0, "")
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "dueline_work"])
"""


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["-c", MANAGE], "closing 7"),
        (["-m", "flask", "--app", "shop_flask", "dueline-work"], "shop closes 7"),
        (["-m", "dueline.cli.main", "work", "shop_fastapi:worker"], "closing 7"),
        (["service.py"], "tick 1"),
    ],
    ids=["django", "flask", "fastapi", "asyncio"],
)
def test_a_worker_on_the_page_works_until_it_is_stopped(
    files: Path, dueline_server: PrivateServer, args: list[str], shown: str
) -> None:
    with dueline_server.client() as client:
        client.send("order.close", 7)
        variables = {"DUELINE_URL": dueline_server.url, "FLASK_DUELINE_URL": dueline_server.url}
        with running(files, args, **variables) as program:
            program.until(shown)
            assert program.end() == 0, program.lines
