"""The benchmark's only error: something did not work, which a slow machine does not explain."""


class Broken(Exception):
    """A part of the benchmark did not work; the message says which and how."""
