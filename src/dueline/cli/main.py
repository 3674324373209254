"""The command `dueline`: one app with the commands of `cli.commands`.

`import dueline` and every command on the API need only the client's dependencies. `serve` imports the server when it is
called, and names the missing package if the server is not installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from .commands import register
from .version import version_flag


def build(words: Sequence[str] = ()) -> typer.Typer:
    """The app for a command line of these words: with the command that they name, or with all commands."""
    app = typer.Typer(
        name="dueline",
        help="A durable delay queue: send a job with a time, get it when the time comes.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=version_flag,
    )
    register(app, words[0].removeprefix("--") if words else "")  # --version is quick, like `version`
    return app


def main() -> None:
    """Entry point. Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict."""
    try:
        build(sys.argv[1:])()
    except BrokenPipeError:
        # The reader of the output is gone (`dueline topics | head -1`), which is not an error.
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
