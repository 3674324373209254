"""Where in the user's own code an error came from. No I/O except reading source lines.

A handler's traceback begins with Dueline's frames and often ends in a library's. Its author looks for the last line of
their own code, so that line is shown first.
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

OURS = str(Path(__file__).parents[1])
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def own_frame(error: BaseException) -> str | None:
    """The last frame of the user's own code, as "FILE:LINE in NAME"; None when there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_foreign(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else None


def trace_text(error: BaseException) -> str:
    """The traceback without the frames before the user's first one, which are Dueline's or the import system's."""
    place = error.__traceback__
    while place is not None and _is_foreign(place.tb_frame.f_code.co_filename):
        place = place.tb_next
    trace = error.__traceback__ if place is None else place
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _is_foreign(filename: str) -> bool:
    return filename.startswith(("<", OURS, *INSTALLED))
