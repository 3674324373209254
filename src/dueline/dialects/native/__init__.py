"""The native API: `NativeDialect` is what the server wires, `InfoView` what it tells about itself, `PushRules` what it
may be told to call."""

from .answers import InfoView
from .dialect import NativeDialect
from .push_rules import PushRules

__all__ = ["InfoView", "NativeDialect", "PushRules"]
