# Everything runs from a fresh clone on Debian 12 with python3.11, make and gcc; each target does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
# Tests that measure real processes must not share the machine with the type checker.
.NOTPARALLEL:

# Debian's own interpreter first: it is built with profile-guided optimisation, where one built by hand often is not,
# and a crawl with that costs a tenth more.
PYTHON ?= $(shell for p in /usr/bin/python3.11 python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
BIN := .venv/bin
UV := $(BIN)/uv
# As pip does when a user installs a package: compiled once, not at every start where Python may not write files.
export UV_COMPILE_BYTECODE := 1

# Debian packages, per target; installed only when missing (and only possible as root).
# nginx serves HTTP/2 to the integration tests, with certificates made by openssl; redis-server is what fleets run on.
# promtool, which checks metrics and alert rules, comes with prometheus; chromium looks at the dashboard.
# The commands of the docs run in a network of their own (iproute2), and some of them are curl's and jq's.
DEBIAN_TEST := nginx-light openssl redis-server libfaketime prometheus chromium iproute2 jq curl
# The manuals that the real-site tests crawl.
DEBIAN_SLOW := $(DEBIAN_TEST) python3.11-doc postgresql-doc-15
DEBIAN_BENCH := wget2
# Manuals for what is said of texts: languages, near-duplicates, preformatted code. And where they are.
DEBIAN_MANUALS := cppreference-doc-en-html libboost1.74-doc postgresql-doc-15 python3.11-doc sqlite3-doc git-doc
MANUALS := $(addprefix /usr/share/,cppreference/doc/html doc/libboost1.74-doc doc/postgresql-doc-15 doc/python3.11 \
	doc/sqlite3 doc/git-doc)

FAST_TESTS := $(wildcard tests/unit tests/conformance)
REAL_TESTS := $(wildcard tests/integration tests/acceptance)
CHECKED := $(wildcard drumlin tests bench docs deploy)
# Unit and conformance tests share nothing and so use all cores. Integration and acceptance tests start real processes
# and mostly wait for them, so three files of them run at a time, also on two cores. They run in the order of their names:
# pytest-xdist would begin with the files of many tests, and end with a few long tests while the other workers are idle.
WORKERS ?= auto
REAL_WORKERS ?= 3

# Tests with real processes have time limits, and on a busy machine one of thousands may miss its limit. So tests that failed
# run once more, alone; whatever fails again has failed. Read the line that says so: such a test wants mending.
define run-tests
	$(BIN)/pytest -q $(1) || { [ $$? = 1 ] && echo "UNSTEADY? These failed beside others and run again alone:" && \
		$(BIN)/pytest -q --last-failed --last-failed-no-failures none $(2); }
endef

.PHONY: help test bytecode lint types fast-tests real-tests s3-server demo bench bench-manuals bench-micro test-slow lock constraints docs \
	docs-site pictures format clean check-deploy deploy-tools dist

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

test: lint types fast-tests real-tests ## lint, format, types and all tests but the slow ones

# drumlin itself is used in place, and so compiled here whenever it has changed.
bytecode: .venv/.ready
	$(BIN)/python -m compileall -q drumlin

lint: .venv/.ready
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

types: .venv/.ready
	$(BIN)/mypy --strict

fast-tests: bytecode
	tests/setup-debian.sh $(DEBIAN_TEST)
	$(call run-tests,-n $(WORKERS) $(FAST_TESTS),$(FAST_TESTS))

real-tests: bytecode s3-server
	tests/setup-debian.sh $(DEBIAN_TEST)
	$(call run-tests,-n $(REAL_WORKERS) --dist loadfile --no-loadscope-reorder $(REAL_TESTS),$(REAL_TESTS))

test-slow: bytecode s3-server deploy-tools .venv-bench/.ready .venv-docs/.ready .venv-replay/.ready ## the tests that take minutes: crashes, fuzzing, replay, real sites
	tests/setup-debian.sh $(DEBIAN_SLOW)
	HYPOTHESIS_PROFILE=thorough $(BIN)/pytest -q --timeout 3600 tests/slow

# The S3 server of the tests is built once, into the user's cache. Without Go these tests are skipped.
s3-server: .venv/.ready
	$(BIN)/python -m tests.harness.s3

demo: bytecode ## crawl a bundled fake web on loopback
	$(BIN)/drumlin demo

bench: bytecode .venv-bench/.ready ## drumlin, Scrapy and wget2 on the same fake web; a long crawl of small pages
	tests/setup-debian.sh $(DEBIAN_BENCH)
	$(BIN)/python -m bench.run
	$(BIN)/python -m bench.small

bench-manuals: bytecode ## near-duplicates, languages and code on six manuals that Debian has
	tests/setup-debian.sh $(DEBIAN_MANUALS)
	$(BIN)/python -m bench.near $(MANUALS)
	$(BIN)/python -m bench.texts $(MANUALS)

bench-micro: bytecode ## microseconds per page of each stage
	$(BIN)/python -m bench.micro

docs: .venv/.ready ## write the reference pages that are generated from code
	$(BIN)/python -m drumlin.api.reference docs/reference/http-calls.md
	$(BIN)/python -m drumlin.cli.exit_codes docs/reference/exit-codes.md
	$(BIN)/python -m drumlin.cli.reference docs/reference/cli.md
	$(BIN)/python -m drumlin.config.reference docs/reference/configuration.md
	$(BIN)/python -m drumlin.events.reference docs/reference/events.md
	$(BIN)/python -m drumlin.frontier.reference docs/reference/failures.md
	$(BIN)/python -m drumlin.metrics.reference docs/reference/metrics.md
	$(BIN)/python -m drumlin.sql.reference docs/reference/sql.md
	$(BIN)/python -m drumlin.store.tables.reference docs/reference/tables.md

# Every warning, such as a link that leads nowhere, ends the build.
docs-site: .venv-docs/.ready ## the documentation as a site, in build/site; it needs no network, nor a server
	.venv-docs/bin/sphinx-build -q -W --keep-going -c docs/site -d build/site-cache . build/site
	@echo "Open build/site/index.html."

pictures: bytecode ## record a terminal and photograph the dashboard, for README.md and the docs
	tests/setup-debian.sh chromium
	$(BIN)/python docs/pictures/make.py

# Validators that are written in Go are built once, into the user's cache. Without Go their files are not checked.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/drumlin/bin
deploy-tools: .venv-deploy/.ready
	tests/setup-debian.sh prometheus systemd
	@mkdir -p $(TOOLS)
	@command -v go >/dev/null || { echo "No Go here: the Helm chart and the compose file are not checked." >&2; exit 0; }; \
	test -x $(TOOLS)/helm || GOBIN=$(TOOLS) nice -n 10 go install helm.sh/helm/v3/cmd/helm@v3.22.0; \
	test -x $(TOOLS)/compose-spec || { GOBIN=$(TOOLS)/new nice -n 10 go install \
		github.com/compose-spec/compose-go/v2/cmd@v2.16.2 && mv $(TOOLS)/new/cmd $(TOOLS)/compose-spec; }

check-deploy: deploy-tools ## check the files in deploy/ with validators
	.venv-deploy/bin/python deploy/check.py

# Everything that a release consists of, in dist/. Two builds of one commit are the same, byte by byte.
dist: .venv/.ready .venv-deploy/.ready ## wheel, sdist, constraints, bill of materials, release notes, checksums
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(UV) build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	rm -f dist/.gitignore
	cp requirements/constraints.txt dist/constraints.txt
	.venv-deploy/bin/python deploy/release.py dist

format: .venv/.ready ## format and fix what ruff can
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: .venv/.ready ## choose and pin the newest allowed versions of all dependencies
	$(COMPILE) --upgrade pyproject.toml -o requirements/runtime.lock
	$(COMPILE) --upgrade pyproject.toml --group dev -c requirements/runtime.lock -o requirements/dev.lock
	$(COMPILE) --upgrade requirements/replay.in -o requirements/replay.txt
	$(COMPILE) --upgrade requirements/docs.in -o requirements/docs.txt
	$(COMPILE) --upgrade requirements/deploy.in -o requirements/deploy.txt
	$(COMPILE) --upgrade requirements/build.in -c requirements/dev.lock -o requirements/build.txt
	$(MAKE) constraints

# For images and users: drumlin with every extra, in the versions that the tests had. It chooses no version that dev.lock has.
constraints: $(BIN)/uv ## pin what the extras need, after one was added
	$(COMPILE) --all-extras pyproject.toml -c requirements/dev.lock -o requirements/extras.lock
	$(COMPILE) --no-generate-hashes --no-annotate --all-extras pyproject.toml -c requirements/extras.lock -o requirements/constraints.txt

clean: ## remove environments and caches
	rm -rf .venv .venv-bench .venv-deploy .venv-docs .venv-replay .venv-types build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find drumlin tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# An environment holds exactly what its lock file says; uv (itself pinned, in .venv) installs it in seconds.
$(BIN)/uv: requirements/uv.lock
	@test -n "$(PYTHON)" || { echo "drumlin needs Python 3.11 or newer: apt-get install python3.11" >&2; exit 1; }
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || tests/setup-debian.sh python3-venv
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.lock
	touch $@

.venv/.ready: $(BIN)/uv requirements/dev.lock pyproject.toml
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

.venv-bench/.ready: $(BIN)/uv bench/requirements.txt
	test -x .venv-bench/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-bench
	$(UV) pip install --quiet --python .venv-bench/bin/python -r bench/requirements.txt
	touch $@

.venv-replay/.ready: $(BIN)/uv requirements/replay.txt
	test -x .venv-replay/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-replay
	$(UV) pip install --quiet --python .venv-replay/bin/python --require-hashes -r requirements/replay.txt
	touch $@

.venv-deploy/.ready: $(BIN)/uv requirements/deploy.txt
	test -x .venv-deploy/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-deploy
	$(UV) pip install --quiet --python .venv-deploy/bin/python --require-hashes -r requirements/deploy.txt
	touch $@

.venv-docs/.ready: $(BIN)/uv requirements/docs.txt
	test -x .venv-docs/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-docs
	$(UV) pip install --quiet --python .venv-docs/bin/python --require-hashes -r requirements/docs.txt
	touch $@
