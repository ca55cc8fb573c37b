# Every task of the repository. `make demo` and `make test` need Python 3.11+, Java 17+ and make, and do all set-up.
# A second run of anything downloads nothing: packages live in .venv, jars in a cache shared by clones.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# Which Python makes .venv (3.11 or newer); empty = the first suitable one found.
PYTHON ?=
# Extra arguments: make test ARGS="-k fence", make up ARGS="--workers 3".
ARGS ?=

BIN := .venv/bin
PACKAGE_LISTS := deploy/requirements.txt deploy/requirements-demo.txt deploy/requirements-compiler.txt deploy/setup.sh \
	$(wildcard */pyproject.toml */*/pyproject.toml) \
	libs/core/setup.py libs/core/src/herdmesh/engine/librdkafka/native.c

# pyright comes whole with its package; without this it asks the network whether there is a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/.ready .venv/.spark ## Make .venv and fetch the broker's jars (all other targets do it when needed)
	@$(BIN)/python -m herdmesh.devstack.jars broker

.venv/.ready: $(PACKAGE_LISTS)
	@deploy/setup.sh "$(PYTHON)"
	@touch $@

# Spark's classes, read once and kept: every worker then starts in half the time.
.venv/.spark: .venv/.ready
	@$(BIN)/python -m herdmesh.worker.spark
	@touch $@

# The other end of the supported Pythons, for the tests that depend on the version. Without it they are skipped.
.venv/.other: .venv/.ready tests/install/other_python.py tests/install/pythons.py
	-@$(BIN)/python -m tests.install.other_python
	@touch $@

.venv/.check-tools: deploy/check-tools.sh deploy/check-tools.txt deploy/requirements-docs.txt | .venv/.ready
	@deploy/check-tools.sh
	@touch $@

.PHONY: demo
demo: setup ## The main job: flights from Kafka to Parquet while a worker is killed
	@$(BIN)/herd demo $(ARGS)

.PHONY: up
up: setup ## Run the whole mesh in this terminal; Ctrl-C stops it
	@$(BIN)/herd up $(ARGS)

# Hundreds of processes start in a test run: Python keeps what it compiled, also where the environment forbids it.
.PHONY: test
test: export PYTHONDONTWRITEBYTECODE :=
test: setup .venv/.other ## All tests (real broker, real PostgreSQL, real Spark, real processes)
	@$(BIN)/python -m herdmesh.devstack.jars connect connect-mirror s3 hdfs jdbc-driver
	-@$(BIN)/python -m herdmesh.devstack.postgres_server
	@$(BIN)/pytest -n auto --dist loadgroup $(ARGS)

.PHONY: test-fast
test-fast: .venv/.ready ## Only the tests that need neither Kafka, PostgreSQL, S3, HDFS nor Spark
	@$(BIN)/pytest -m "not kafka and not postgres and not spark and not s3 and not hdfs" $(ARGS)

.PHONY: check
check: .venv/.check-tools ## ruff, pyright, layers, contracts, generated code, the site's links (changes nothing)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright
	@$(BIN)/lint-imports --no-logo
	@PATH="$(CURDIR)/$(BIN):$$PATH" .venv/npm/node_modules/.bin/buf lint
	@PATH="$(CURDIR)/$(BIN):$$PATH" .venv/npm/node_modules/.bin/buf format -d --exit-code
	@PATH="$(CURDIR)/$(BIN):$$PATH" .venv/npm/node_modules/.bin/buf breaking --against $(wildcard protos/released/*.binpb)
	@$(BIN)/python protos/generate.py --check
	@$(BIN)/pytest -q tests/tidy
	@$(BIN)/python -m website

.PHONY: docs
docs: .venv/.check-tools ## Build the documentation with strict links: build/website/site/index.html
	@$(BIN)/python -m website

.PHONY: fix
fix: .venv/.check-tools protos ## What check complains about and a tool can mend
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format
	@PATH="$(CURDIR)/$(BIN):$$PATH" .venv/npm/node_modules/.bin/buf format -w
	@$(BIN)/python -m website --pages

.PHONY: protos
protos: .venv/.ready ## Generate libs/core/src/herdmesh/api from protos/
	@$(BIN)/python protos/generate.py

# One file: the contracts of the last release, which make check holds later ones against.
.PHONY: protos-released
protos-released: .venv/.check-tools ## At a release: keep its contracts in protos/released, in place of the last one's
	@rm -f protos/released/*.binpb
	@mkdir -p protos/released
	@PATH="$(CURDIR)/$(BIN):$$PATH" .venv/npm/node_modules/.bin/buf build --exclude-source-info \
		-o protos/released/$$($(BIN)/python -c 'from importlib.metadata import version; print(version("herdmesh-core"))').binpb

.PHONY: bench-records
bench-records: setup ## Records through Herdmesh and Java Connect on one broker, side by side (ARGS="--quick --only string")
	@$(BIN)/python -m herdmesh.devstack.jars connect
	@$(BIN)/python -m bench.records $(ARGS)

.PHONY: bench-connectors
bench-connectors: setup ## Connectors and the SDK beside Java's on one broker and one PostgreSQL server (ARGS="--only postgres")
	@$(BIN)/python -m herdmesh.devstack.postgres_server
	@$(BIN)/python -m bench.connectors $(ARGS)

.PHONY: bench-tasks
bench-tasks: setup ## Converters, transformations and tasks alone, beside an older tree's (ARGS="--before ../before/.venv/bin/python")
	@$(BIN)/python -m herdmesh.devstack.postgres_server
	@$(BIN)/python -m bench.tasks $(ARGS)

.PHONY: bench-stores
bench-stores: setup ## The two stores against Java Connect's backing stores on one broker, side by side
	@$(BIN)/python -m herdmesh.devstack.jars connect
	@$(BIN)/python -m bench.stores $(ARGS)

.PHONY: bench-herder
bench-herder: setup ## The control plane against Java Connect's on one broker, side by side
	@$(BIN)/python -m herdmesh.devstack.jars connect
	@$(BIN)/python -m bench.herder $(ARGS)

.PHONY: bench-many
bench-many: setup ## 50, 500 and 1,000 connectors from files beside Java Connect's REST calls (ARGS="--sizes 50 --idle-s 3")
	@$(BIN)/python -m herdmesh.devstack.jars connect
	@$(BIN)/python -m bench.many $(ARGS)

.PHONY: bench-scale
bench-scale: setup ## The control plane at 100 to 1,500 connectors: time, memory, threads and how each grows
	@$(BIN)/python -m herdmesh.devstack.jars connect
	@$(BIN)/python -m bench.scale $(ARGS)

.PHONY: bench-scale-members
bench-scale-members: setup ## Members killed, stopped and returned with 100 to 1,500 real units: whose units restart, how long (ARGS="--units 300")
	@$(BIN)/python -m herdmesh.devstack.jars connect
	@$(BIN)/python -m bench.scale.members $(ARGS)

.PHONY: chaos
chaos: setup ## 15 minutes of kill -9, freezes and restarts of anything, counted (ARGS="--seed 7 --seconds 60")
	@$(BIN)/python -m tests.chaos $(ARGS)

.PHONY: soak
soak: setup ## The long tests at full size, and docs/internals/soak.md with what they did (ARGS="sim real" = these parts)
	@$(BIN)/python -m herdmesh.devstack.jars connect
	@$(BIN)/python -m tests.soak $(ARGS)

.PHONY: dist
dist: .venv/.ready ## All distributions as wheels in dist/
	@$(BIN)/python deploy/dist.py

.PHONY: dist-check
dist-check: setup dist ## Install the wheels into empty environments and run them (ARGS="--python python3.12")
	@$(BIN)/python -m tests.install $(ARGS)

.PHONY: clean
clean: ## Remove .venv and caches; keeps .herd (your data) and the shared jars
	@rm -rf .venv dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	@find . -name __pycache__ -prune -exec rm -rf {} + -o -name '*.egg-info' -prune -exec rm -rf {} +
