"""What every test has: `async def` tests are run."""

pytest_plugins = ["tests.kit.async_tests"]
