"""Commands with a lease token as an argument. One token in 64 begins with a dash: it must not be read as options."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from typer.core import TyperCommand, TyperOption

TOKEN = re.compile(r"-[A-Za-z0-9_-]{15}")


class TokenCommand(TyperCommand):
    """A command whose arguments may look like options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = [param for param in self.params if isinstance(param, TyperOption)]
        flags = {name for option in options if option.is_flag for name in (*option.opts, *option.secondary_opts)}
        valued = {name for option in options if not option.is_flag for name in option.opts}
        return super().parse_args(ctx, arranged(args, valued, flags | set(ctx.help_option_names)))


def arranged(words: Sequence[str], valued: Collection[str], flags: Collection[str]) -> list[str]:
    """The same words with the arguments behind a `--` if one of them is a token with a dash; else as they are."""
    options: list[str] = []
    arguments: list[str] = []
    takes_value = False
    found = False
    for place, word in enumerate(words):
        if takes_value:
            options.append(word)
            takes_value = False
        elif word == "--":
            arguments += words[place + 1 :]
            break
        elif TOKEN.fullmatch(word) and word not in valued and word not in flags:
            found = True
            arguments.append(word)
        elif word.startswith("-") and len(word) > 1:
            options.append(word)
            takes_value = word in valued
        else:
            arguments.append(word)
    return [*options, "--", *arguments] if found else list(words)
