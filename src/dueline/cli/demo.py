"""The command `demo`: a server with the jobs of an online shop, in a temporary folder."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from .exit_codes import FAILURE

DEMO_EXAMPLES = ("dueline demo", "dueline demo --port 9400", "dueline demo --still --seed 1")

DEFAULT_PORT = 9278


def demo(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 chooses a free one.")
    ] = DEFAULT_PORT,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random jobs.")] = 7,
    still: Annotated[bool, typer.Option("--still", help="Send nothing new after the start, for screenshots.")] = False,
) -> None:
    """Show Dueline with the jobs of an online shop, until Ctrl-C. Everything is deleted at the end."""
    from ..demo.run import run
    from ..testing.process import NotStarted

    print("opening a shop in a temporary folder...", file=sys.stderr)
    try:
        asyncio.run(run(port or None, seed, still, _opened))
    except NotStarted as error:
        print(f"the server of the demo did not start:\n{error}", file=sys.stderr)
        raise typer.Exit(FAILURE) from None
    print("closed; nothing is left", file=sys.stderr)


def _opened(url: str) -> None:
    print(f"dueline demo ready on {url}/ui/ (Ctrl-C ends it)", flush=True)
