"""The native API. The server creates a `NativeDialect` and gives it an `InfoView` (data about the server) and
`PushRules` (checks for push targets)."""

from .answers import InfoView
from .dialect import NativeDialect
from .push_rules import PushRules

__all__ = ["InfoView", "NativeDialect", "PushRules"]
