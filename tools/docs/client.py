"""The reference of the Python client, made from signatures and docstrings: `python -m tools.docs.client`."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

from dueline.api import answers as r
from dueline.api.requests import NewJob
from dueline.client import calls, errors, sending, times
from dueline.client.api import Api
from dueline.client.async_client import AsyncClient
from dueline.client.client import Client
from dueline.client.method import method, pages
from dueline.client.overview_api import OverviewApi
from dueline.client.patience import Patience
from dueline.client.schedule_api import ScheduleApi, ScheduleOptions, When
from dueline.client.sending import SendOptions
from dueline.client.token_api import TokenApi
from dueline.client.topic_api import TopicApi
from tools.docs.reference import a_class, called, text_of
from tools.docs.wrap import wrapped

_HEAD = """# Python reference

Generated from the code by `make docs`. The [guide](python.md) comes first.

Every name is imported from `dueline`. The methods are shown for `Client`. With an `AsyncClient`, await them, and
iterate lists with `async for`.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, "\n## Clients\n"]
    parts += [_class(kind) for kind in (Client, AsyncClient, Patience)]
    parts.append("\n## Methods\n")
    methods = {**vars(Api), **vars(TopicApi), **vars(OverviewApi), **vars(ScheduleApi), **vars(TokenApi)}
    parts += [_method(name, value) for name, value in methods.items() if isinstance(value, method | pages)]
    parts.append("\n## Options of a send\n\n")
    parts += [
        _options(kind)
        for kind in (SendOptions, sending.Times, sending.Policy, sending.MergeOptions, sending.MergePolicy)
    ]
    parts.append(f"\n{text_of(times)}\n")
    parts.append("\n## Options of a schedule\n\n")
    parts += [_options(kind) for kind in (ScheduleOptions, When)]
    parts.append("\n## Results\n")
    results = (
        r.Sent,
        r.SentItem,
        r.LeasedJob,
        r.Job,
        r.Outcome,
        r.Topic,
        r.Forecast,
        r.Charts,
        r.Series,
        r.OpenGroup,
        r.Schedule,
        r.Token,
        r.SecretToken,
    )
    parts += [_class(kind) for kind in (*results, calls.Leased, NewJob)]
    parts.append("\n## Errors\n\n| error | code | meaning |\n|---|---|---|\n")
    parts += _errors(errors.DuelineApiError, 0)
    return wrapped("".join(parts))


def _method(name: str, value: method[..., Any] | pages[..., Any]) -> str:
    plan: Callable[..., Any] = value.__wrapped__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
    signature = inspect.signature(plan)
    given = [_plain(str(p).replace("'", "")) for p in list(signature.parameters.values())[1:]]
    answer = _answer(str(signature.return_annotation), isinstance(value, pages))
    return f"\n### {name}\n\n```text\n{called(name, given, f' -> {answer}')}\n```\n\n{text_of(plan)}\n"


def _answer(annotation: str, walked: bool) -> str:
    """The return type: Sent for Call[r.Sent], an iterator of Job for Pages[r.Job]."""
    inner = re.sub(r"^(?:Call|Steps|Pages)\[(.*)\]$", r"\1", annotation)
    return f"Iterator[{_plain(inner)}]" if walked else _plain(inner)


def _plain(text: str) -> str:
    """A signature without our module names, and without Unpack around typed keyword arguments."""
    return re.sub(r"Unpack\[(\w+)\]", r"\1", text.replace("r.", ""))


def _class(kind: type[Any]) -> str:
    """A class without its methods, which both clients share."""
    return a_class(kind, omit=vars(kind), made=kind is not Patience)


def _options(kind: type[Any]) -> str:
    own = [f"`{name}`" for name in typing.get_type_hints(kind) if name in vars(kind)["__annotations__"]]
    return f"**{kind.__name__}** ({', '.join(own)}): {text_of(kind)}\n\n"


def _errors(kind: type[errors.DuelineApiError], depth: int) -> Iterator[str]:
    doc = text_of(kind).splitlines()[0]
    yield f"| {'&nbsp;' * 4 * depth}`{kind.__name__}` | `{kind.code}` | {doc} |\n"
    for child in kind.__subclasses__():
        yield from _errors(child, depth + 1)


if __name__ == "__main__":
    print(page(), end="")
