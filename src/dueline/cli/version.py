"""The command `version`, and the option `--version`."""

from __future__ import annotations

import platform
from typing import Annotated

import msgspec
import typer

from .._version import __version__
from .output import Output, Printer

VERSION_EXAMPLES = ("dueline version", "dueline version -o json")


def _shown(asked: bool) -> None:
    if asked:
        typer.echo(_text())
        raise typer.Exit


def _text() -> str:
    return f"dueline {__version__} (python {platform.python_version()})"


def version_flag(
    asked: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_shown, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of the program itself, before any command."""


def version(output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE) -> None:
    """Print the version of this command; `dueline doctor` shows the server's."""
    found = {"version": __version__, "python": platform.python_version()}
    Printer(output).result(msgspec.json.encode(found), _text())
