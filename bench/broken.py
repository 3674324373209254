"""The one error of the benchmark: something did not work, which no slow machine explains."""


class Broken(Exception):
    """A part of the benchmark did not work; the message says which and how."""
