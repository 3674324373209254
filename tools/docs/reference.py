"""Reference pages from signatures and docstrings. The modules client, worker and testing list what each page shows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .wrap import WIDTH

_LONG_CHARS = 40


def text_of(thing: Any) -> str:
    """Its own docstring, not an inherited one."""
    own = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    return inspect.cleandoc(own or "")


def a_class(kind: type[Any], omit: Collection[str] = (), borrow: type[Any] | None = None, made: bool = True) -> str:
    """A class: its constructor (if `made`), docstring, fields and methods. A method without a docstring takes that of
    the same name in `borrow`; such properties are listed together."""
    parts = [f"\n### {kind.__name__}\n"]
    init: Any = vars(kind).get("__init__") if made else None
    if inspect.isfunction(init):
        parts.append(f"\n```text\n{called(kind.__name__, arguments(init))}\n```\n")
    parts += [f"\n{text}\n" for text in (text_of(kind), text_of(init)) if text]
    fields = ", ".join(
        f"`{name}`" for name in (*getattr(kind, "__struct_fields__", ()), *getattr(kind, "__members__", ()))
    )
    parts += [f"\nFields: {fields}.\n"] if fields else []
    silent: list[str] = []
    for name, shown, text in members(kind, omit):
        if not text and isinstance(vars(kind)[name], property):
            silent.append(f"`{shown}`")
        else:
            parts.append(f"\n```text\n{shown}\n```\n\n{text or text_of(getattr(borrow, name, None))}\n")
    parts += [f"\nAnd {', '.join(silent)}.\n"] if silent else []
    return "".join(parts)


def members(kind: type[Any], omit: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """The public methods and properties that a class defines itself: name, signature, docstring."""
    for name, value in vars(kind).items():
        if name.startswith("_") or name in omit:
            continue
        if isinstance(value, property):
            answer = inspect.signature(value.fget).return_annotation if value.fget else Any
            yield name, f"{name} -> {_plain(str(answer))}", text_of(value)
        elif inspect.isfunction(value):
            yield name, signature(value), text_of(value)


def a_function(function: Callable[..., Any]) -> str:
    """A function of a module."""
    return f"\n### {function.__name__}\n\n```text\n{signature(function)}\n```\n\n{text_of(function)}\n"


def signature(function: Callable[..., Any]) -> str:
    """A function's signature without our module names."""
    before = "async " if inspect.iscoroutinefunction(function) else ""
    answer = _plain(str(inspect.signature(function).return_annotation))
    name = getattr(function, "__name__", "")
    return called(f"{before}{name}", arguments(function), f" -> {answer}")


def called(name: str, given: list[str], answer: str = "") -> str:
    """A call with its arguments: in one line if it fits, else one line per argument."""
    line = f"{name}({', '.join(given)}){answer}"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {one}," for one in given), f"){answer}"])


def arguments(function: Callable[..., Any]) -> list[str]:
    """Its arguments, without `self` and without functions that only tests replace."""
    shown: list[str] = []
    starred = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self" or inspect.isroutine(parameter.default):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_default(parameter.default)}"
        shown.append(_plain(str(parameter.replace(default=inspect.Parameter.empty))) + default)
    return shown


def _default(value: Any) -> str:
    """A default value as source code; a long one is left to the docstring."""
    text = repr(value)
    if len(text) <= _LONG_CHARS:
        return text
    return f"{type(value).__name__}()" if value == type(value)() else "..."


def _plain(text: str) -> str:
    """An annotation without quotes, and without Unpack around typed keyword arguments."""
    return re.sub(r"Unpack\[(\w+)\]", r"\1", re.sub(r"(?<=: )'([^']*)'|^'([^']*)'$", r"\1\2", text))
