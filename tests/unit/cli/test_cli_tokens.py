"""A lease token may begin with a dash; it is an argument all the same."""

from __future__ import annotations

import pytest

from dueline.cli.tokens import arranged

DASHED = "-AoYnhQ_-xxxAAAA"
DOUBLE = "--oYnhQ_-xxxAAAA"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["t", "id", DASHED], ["--", "t", "id", DASHED]),
        (["t", "id", DOUBLE, "--error", "x"], ["--error", "x", "--", "t", "id", DOUBLE]),
        (["-o", "json", "t", "id", DASHED, "--discard"], ["-o", "json", "--discard", "--", "t", "id", DASHED]),
        (["t", "id", "L", "--error", DASHED], ["t", "id", "L", "--error", DASHED]),
        (["t", "--", "id", DASHED], ["t", "--", "id", DASHED]),
        (["t", "id", "L", "--disard"], ["t", "id", "L", "--disard"]),
        (["t", "id", "L", "-ojson"], ["t", "id", "L", "-ojson"]),
        (["t", "id", DASHED, "--exactly-16-lng"], ["--exactly-16-lng", "--", "t", "id", DASHED]),
    ],
)
def test_a_token_with_a_dash_stands_with_the_arguments(words: list[str], expected: list[str]) -> None:
    assert arranged(words, {"--error", "-o"}, {"--discard", "--exactly-16-lng"}) == expected
