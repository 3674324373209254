"""What every test has: `async def` tests are run, and the garbage collector skips what was loaded before them."""

import gc
import os

pytest_plugins = ["tests.kit.async_tests", "tests.kit.fault_suite"]


def pytest_collection() -> None:
    gc.disable()  # thousands of modules and tests are made, and none of them is garbage


def pytest_collection_finish() -> None:
    os.environ.pop("PYTEST_DISABLE_PLUGIN_AUTOLOAD", None)  # of `make test`; a pytest that a test starts loads them all
    gc.freeze()
    gc.enable()
