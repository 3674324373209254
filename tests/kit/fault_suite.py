"""The fault suite as a pytest plugin: how long it is, its seed, and one line per scenario at the end of the run.

    pytest tests/faults -m faults                       the short one (`make test-faults`)
    pytest tests/faults -m faults --faults-long         all rounds (`make test-faults-long`)
    ... --faults-seed 7 --faults-results FILE           another seed; the results as JSON lines, for the docs

A test of the suite has the marker `faults` and ends with `suite.report(scenario)`. Scenarios of one name, for example
those of one test with several seeds, become one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tools.faults.scenario import Scenario, together, write

_PROPERTY = "fault scenario"
_reported = pytest.StashKey[list[Scenario]]()


class FaultSuite:
    """What a test of the suite is given."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.seed: int = request.config.getoption("--faults-seed")
        self.long: bool = request.config.getoption("--faults-long")
        self._properties: list[tuple[str, object]] = request.node.user_properties

    def rounds(self, short: int, long: int) -> int:
        """How many faults this run injects."""
        return long if self.long else short

    def report(self, scenario: Scenario) -> None:
        """Print the scenario at the end of the run, and fail if something is wrong."""
        self._properties.append((_PROPERTY, msgspec.to_builtins(scenario)))
        assert scenario.failures() == [], scenario.line()


@pytest.fixture
def suite(request: pytest.FixtureRequest) -> FaultSuite:
    return FaultSuite(request)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults", "the fault suite")
    group.addoption("--faults-long", action="store_true", help="all rounds of every scenario")
    group.addoption("--faults-seed", type=int, default=1, help="same seed, same schedule of faults (default 1)")
    group.addoption("--faults-results", type=Path, default=None, help="write the scenarios to this file, as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_reported] = []
    config.pluginmanager.register(_Collector(config), "fault scenarios")


class _Collector:
    """Collects the scenarios of all test processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            found: list[Any] = [value for name, value in report.user_properties if name == _PROPERTY]
            self._config.stash[_reported] += [msgspec.convert(value, Scenario) for value in found]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        scenarios = together(self._config.stash[_reported])
        if scenarios:
            terminalreporter.section("fault scenarios")
            for scenario in scenarios:
                terminalreporter.write_line(scenario.line())
            path = self._config.getoption("--faults-results")
            if path is not None:
                write(path, scenarios)
