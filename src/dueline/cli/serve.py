"""The command `serve`: runs the server. Its dependencies are an extra and are imported only when it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .session import FAILURE, USAGE

SERVE_EXAMPLES = (
    "dueline serve",
    "dueline serve --listen 127.0.0.1:9300 --data /var/lib/dueline --workers 2",
    "dueline serve --store redis://127.0.0.1:6379/0 --config /etc/dueline.toml",
    "dueline serve --ouqiang-config /etc/delay-queue.conf --insecure",
)


def serve(
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", show_default="127.0.0.1:9277", help="Where to listen."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", show_default="./dueline-data", help="Folder of the embedded store."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="A Redis or Valkey to use instead of the embedded store."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration file (TOML).")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", show_default="1", help="Server processes.")
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure", help="Listen on an address that others can reach, without tokens.", show_default=False
        ),
    ] = None,
    ouqiang_config: Annotated[
        Path | None,
        typer.Option(
            "--ouqiang-config", metavar="FILE", help="Configuration file of ouqiang/delay-queue, to replace it."
        ),
    ] = None,
) -> None:
    """Run the server in the foreground until SIGTERM or Ctrl-C."""
    try:
        from ..config.load import ConfigError, load, wants_json
        from ..config.ouqiang_ini import Unreadable, read
        from ..server.serve import refuse, run
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("dueline"):
            raise
        print(
            f"the server's parts are not installed ({missing.name} is missing): install dueline[server], "
            'such as by pip install "dueline[server]"',
            file=sys.stderr,
        )
        raise typer.Exit(FAILURE) from None
    flags = {
        "server.listen": listen,
        "server.workers": workers,
        "server.insecure": insecure,
        "store.url": store,
        "store.data": data,
    }
    try:
        ouqiang = None if ouqiang_config is None else read(ouqiang_config)
        settings = load(flags, os.environ, config, ouqiang)
    except (ConfigError, Unreadable) as error:
        log_format = "json" if wants_json(os.environ, config) else "text"
        raise typer.Exit(refuse(str(error), log_format, USAGE)) from None
    raise typer.Exit(run(settings, ouqiang.notes if ouqiang is not None else ()))
