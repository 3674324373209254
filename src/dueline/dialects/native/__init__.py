"""The native API: `NativeDialect` is what the server wires, `InfoView` what it tells about itself."""

from .answers import InfoView
from .dialect import NativeDialect

__all__ = ["InfoView", "NativeDialect"]
