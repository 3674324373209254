"""The command `serve`: runs the server. Its dependencies are an extra and are imported only when it is called.

A dialect may add an option: the configuration file of the original that it replaces.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..dialects.spec import ConfigFile, Unreadable
from ..dialects.table import DIALECTS
from .exit_codes import FAILURE, USAGE

CONFIG_FILES = tuple(spec.config_file for spec in DIALECTS if spec.config_file is not None)
SERVE_EXAMPLES = (
    "dueline serve",
    "dueline serve --listen 127.0.0.1:9300 --data /var/lib/dueline --workers 2",
    "dueline serve --store redis://127.0.0.1:6379/0 --config /etc/dueline.toml",
    *(f"dueline serve {file.flag} {file.example} --insecure" for file in CONFIG_FILES),
)


def _serve(
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", show_default="127.0.0.1:9277", help="Address to listen on."),
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
            "--insecure", help="Listen on an address that others can reach, without tokens or TLS.", show_default=False
        ),
    ] = None,
    foreign: Sequence[tuple[ConfigFile, Path]] = (),
) -> None:
    """Run the server in the foreground until SIGTERM or Ctrl-C."""
    try:
        with _collector_off():
            from ..config.errors import ConfigError
            from ..config.load import load, wants_json
            from ..server.serve import refuse, run
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("dueline"):
            raise
        print(
            f'the server\'s parts are not installed ({missing.name} is missing): run pip install "dueline[server]"',
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
        files = [file.read(path) for file, path in foreign]
        settings = load(flags, os.environ, config, files)
    except (ConfigError, Unreadable) as error:
        log_format = "json" if wants_json(os.environ, config) else "text"
        raise typer.Exit(refuse(str(error), log_format, USAGE)) from None
    raise typer.Exit(run(settings, [note for file in files for note in file.notes]))


@contextmanager
def _collector_off() -> Generator[None]:
    """No garbage collection while modules are loaded: they leave hardly any garbage, and the search takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _with_files(command: Callable[..., None], files: Sequence[ConfigFile]) -> Callable[..., None]:
    """The command with an option for each file. It gets those that were given as `foreign`."""

    def extended(**given: Any) -> None:
        paths = [given.pop(_parameter(file)) for file in files]
        command(**given, foreign=[(file, path) for file, path in zip(files, paths, strict=True) if path is not None])

    own = [one for name, one in inspect.signature(command, eval_str=True).parameters.items() if name != "foreign"]
    added = [
        inspect.Parameter(
            _parameter(file),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[Path | None, typer.Option(file.flag, metavar="FILE", help=file.help)],
        )
        for file in files
    ]
    extended.__doc__ = command.__doc__
    extended.__signature__ = inspect.Signature([*own, *added])  # pyright: ignore[reportFunctionMemberAccess]
    extended.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
    return extended


def _parameter(file: ConfigFile) -> str:
    return file.flag.removeprefix("--").replace("-", "_")


serve = _with_files(_serve, CONFIG_FILES)
