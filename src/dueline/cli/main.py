"""The command `dueline`: one app with the commands of cli.commands, and `serve`.

`import dueline` and every command on the API need only the client's dependencies. `serve` imports the server when it is
called, and names the missing package if the server is not installed.
"""

from __future__ import annotations

import sys

import typer

from .commands import register
from .serve import SERVE_EXAMPLES, serve
from .version import version_flag


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="dueline",
        help="A durable delay queue: send a job with a time, get it when the time comes.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=version_flag,
    )
    app.command("serve", epilog="\n\n".join(["Examples:", *SERVE_EXAMPLES]), rich_help_panel="Server")(serve)
    register(app)
    return app


def main() -> None:
    """Entry point. Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict."""
    try:
        build()()
    except BrokenPipeError:
        # The reader of the output is gone (`dueline topics | head -1`), which is not an error.
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
