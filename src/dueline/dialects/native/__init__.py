"""The native API: `NativeDialect` speaks it over HTTP, `NativeApi` answers calls from the same process. Both get an
`Info` (data about the server) and `PushRules` (checks for push targets)."""

from .api import NativeApi
from .dialect import NativeDialect
from .push_rules import PushRules

__all__ = ["NativeApi", "NativeDialect", "PushRules"]
