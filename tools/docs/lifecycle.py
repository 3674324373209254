"""Generates the page of states from the table of moves: `python -m tools.docs.lifecycle > docs/lifecycle.md`."""

from __future__ import annotations

from dueline.engine.job import State
from dueline.engine.lifecycle import MOVES


def page() -> str:
    """The whole page."""
    rows = [
        f"| {_names(move.before) or '(no job)'} | {move.event} | {_names(move.after) or '(gone)'}"
        f"{f', reason {move.reason}' if move.reason else ''} |"
        for move in MOVES
    ]
    text = (
        "# States and the moves between them",
        "",
        "Generated from the table in `src/dueline/engine/lifecycle.py` (`make docs`); do not edit.",
        "",
        "`ready` is not stored: a job is ready when it is not leased and its due time has passed. In the same",
        "way, an expired lease, an expired job and a job without attempts left follow from the record and the",
        "time. Clean-up only records them.",
        "",
        "| from | what happens | to |",
        "|---|---|---|",
        *rows,
    )
    return "\n".join(text) + "\n"


def _names(states: tuple[State, ...]) -> str:
    return ", ".join(states)


if __name__ == "__main__":
    print(page(), end="")
