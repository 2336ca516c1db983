# make demo    a name server, a broker, a standard client, Spark over the store: two minutes
# make test    the tests of the product         make check   format, lint, types, then the tests
# make test-pages    the tests of what is around the product: pages, examples, kits, packages, benches, fuzzers
# make test-python   the tests of both that need no JVM, Go and Spark         make test-jvm   the others
# make test-long    all tests, with many random cases in place of few
# make test-quick   the quick ones of the tests without a JVM, Go and Spark
# make setup   only create .venv                make jar     the data source of Spark in Java
# make docs    the documentation site, in build/site; fails for a broken link
# make lane    build the compiled lane anew, after a change of its sources; needs cargo
# make clean   delete everything that was built
# make bench   PocketMQ beside Apache 4.9.4 and a server in C that does the least (needs cc)
# make bench-many   cost of a send and of a start with up to 10,000 topics, 5,000 connections, 10,000 held pulls
# make bench-delay   lateness of delayed messages, beside Apache 5.5.0
# make bench-spark   speed of Spark reading stores with messages of 300 B and 1 KiB, beside the decoder alone
# make bench-spark-sizes   time and memory of Spark reading 1 to 10 GiB (in SPARK_FOLDER): five minutes
# make bench-spark-damage   both readers over 10 GiB with damage in 400 places (in SPARK_FOLDER): ten minutes
# make bench-store   speed of reading, recovering and verifying 1 GiB of log
# make bench-replication   cost of replication for a master, beside Apache 4.9.4 in the same roles
# make bench-grpc   cost of gRPC clients, beside the proxy and broker of Apache 5.5.0
# make bench-clients   Python clients beside each other: PocketMQ's, Apache's in C++, the official one for gRPC
# make bench-hostile   effect of 50 attacks on a healthy producer and consumer: about half an hour
# make simulate SEEDS=10000   random histories of the store on a simulated disk with power cuts and errors
# make check-set   a set of masters and slaves under kills and cut networks: which messages are lost, doubled, late
# make fuzz FUZZ_ARGS="--inputs 5000000"   coverage-guided fuzzing of all code that reads untrusted bytes
# make fuzz-lane FUZZ_RUNS=5000000   the same for the compiled lane, by libFuzzer; needs cargo and a C++ compiler
# make check-image   build and run the container image of deploy/ without a container engine; needs root and debootstrap
# make release   sdist, wheel and the list of their software in dist/; RELEASE_ARGS=--snapshot between releases
# make damage DAMAGE_ARGS="--every"   a broker on a store with each of its files damaged, each bit flipped
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
# PYTHONDONTWRITEBYTECODE, which many container images set, would make each process of the tests compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
# By default the fastest installed Python: those of distributions are built with profile-guided optimisation, with which a
# broker needs a fifth less CPU than with one compiled by hand without it.
PYTHON ?=
TESTS ?= tests
PYTEST_ARGS ?=
SPARK_FOLDER ?= bench-store
SEEDS ?= 1000
FUZZ_RUNS ?= 5000000
# Number of test processes, which share the test files. Tests mostly wait, so more processes than cores are useful.
PROCESSES ?= 6
PYTEST = $(PY) -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)
# Every test file is in one of the two; a test checks that.
JVM := tests/interop tests/spark_analytics
PYTHON_ONLY := $(filter-out $(JVM),$(patsubst %/__init__.py,%,$(wildcard tests/*/__init__.py)) $(wildcard tests/test_*.py))
# What is around the product: the pages, the examples, the kits for tests, the packages and images, the benches, the fuzzers.
PAGES := tests/bench tests/deploy tests/docs tests/examples tests/fuzz/test_fuzz_targets.py tests/interop/kits \
	tests/interop/test_grpc_examples.py \
	tests/interop/test_java_newcomer.py tests/interop/test_rocketmq_examples.py tests/interop/test_tours.py \
	tests/pocketmq/test_grpc_page.py tests/pocketmq/test_pytest_fixtures.py tests/pocketmq/test_testing_page.py \
	tests/pocketmq/test_wheel.py tests/spark_analytics/test_spark_newcomer.py tests/spark_analytics/test_spark_notebook.py
QUICK := tests/test_architecture.py tests/runtime tests/remoting tests/namesrv tests/client tests/broker

.PHONY: help setup jar lane docs demo test test-pages test-python test-jvm test-long test-quick check simulate check-set fuzz fuzz-lane damage bench bench-many bench-delay bench-spark bench-spark-sizes bench-spark-damage bench-store bench-replication bench-grpc bench-clients bench-hostile check-image release clean

help:
	@sed -n '/^# /!q; s/^# //p' Makefile

# editable_mode=compat: a plain path entry; the import hook of the default mode slows down every start.
# Of pip's output only the fetched packages are shown, as progress.
# spark-env.sh is read by Spark's scripts that start the JVM. The JVM looks for data sources with $PYSPARK_PYTHON, else with the
# python3 on the PATH, which is another one if $(VENV) is not activated.
# Modules are compiled so that servers start in half the time. The egg-info and direct_url.json are removed because pytest
# rewrites the assertions of all modules of a plugin that is listed there as installed from this folder, in each test process.
define install
	@echo "installing PocketMQ with [$(1)] into $(VENV) (the first time takes a minute or two)"
	@$(PY) -m pip install --disable-pip-version-check --no-input -e '.[$(1)]' \
		--config-settings editable_mode=compat 2>&1 \
		| { grep --line-buffered -E '^(Collecting|Installing|Successfully|ERROR|error|WARNING: Retrying)' || true; } | cut -c 1-150
	@conf="$$($(PY) -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "conf")')" && mkdir -p "$$conf" && \
	echo ': "$${PYSPARK_PYTHON:=$(CURDIR)/$(PY)}"' > "$$conf/spark-env.sh"
	@rm -rf pocketmq.egg-info $(VENV)/lib/python*/site-packages/pocketmq-*.dist-info/direct_url.json
	@$(PY) -m compileall -q pocketmq
	@test -d broker || echo "This folder has no symbolic links (a zip archive, or git with core.symlinks=false), so python -m broker" \
		"and python -m namesrv do not work in it: use $(VENV)/bin/mqbroker and $(VENV)/bin/mqnamesrv."
	@$(PY) -c 'from pocketmq.lane import compiled_lane; print("compiled lane:", compiled_lane()[1])'
	@touch $@
endef

$(VENV)/bin/pip:
	@python="$(PYTHON)"; python="$${python:-$$(sh bench/quickest_python.sh)}"; \
	test -n "$$python" || { echo "PocketMQ needs Python 3.11 or newer with its venv module, but there is none on the PATH." \
		"Install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name one: make PYTHON=/path/to/python"; exit 1; }; \
	echo "creating $(VENV) with $$python"; \
	$$python -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

LANE_SOURCES := $(wildcard pocketmq/lane/crate/Cargo.* pocketmq/lane/crate/src/*.rs)

$(VENV)/.spark: pyproject.toml $(LANE_SOURCES) | $(VENV)/bin/pip
	$(call install,spark$(COMMA)grpc)

$(VENV)/.dev: pyproject.toml $(LANE_SOURCES) | $(VENV)/bin/pip
	$(call install,spark$(COMMA)grpc$(COMMA)console$(COMMA)docs$(COMMA)dev)
	@touch $(VENV)/.spark

COMMA := ,

setup: $(VENV)/.dev jar

# The data source in Java; without a JDK nothing is built, and Spark uses the one in Python.
jar: $(VENV)/.spark
	@$(PY) -m pocketmq.spark_analytics.jvm build --if-stale

lane: $(VENV)/bin/pip
	@rm -f pocketmq/lane/_lane*.so $(VENV)/.dev $(VENV)/.spark
	@$(MAKE) --no-print-directory setup

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "the site is in build/site"

demo: $(VENV)/.spark jar
	@$(PY) -m demo $(DEMO_ARGS)

# TESTS=tests/broker runs those.
test: $(VENV)/.dev jar
	@$(PYTEST) $(TESTS) $(if $(filter tests,$(TESTS)),$(PAGES:%=--ignore=%))

test-pages: $(VENV)/.dev jar
	@$(PYTEST) $(PAGES)

test-python: $(VENV)/.dev
	@$(PYTEST) $(PYTHON_ONLY)

test-jvm: $(VENV)/.dev jar
	@$(PYTEST) $(JVM)

test-long: export POCKETMQ_LONG := true
test-long: test test-pages

test-quick: $(VENV)/.dev
	@$(PYTEST) $(QUICK) -m "not slow"

check: $(VENV)/.dev jar
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@! command -v cargo >/dev/null || (cd pocketmq/lane/crate && cargo fmt --check && cargo clippy -q --release -- -D warnings)
	@$(MAKE) --no-print-directory test

simulate: $(VENV)/.dev
	@$(PY) -m tests.store.simulator --seeds 0:$(SEEDS) $(SIMULATE_ARGS)
	@$(PY) -m tests.store.replication_simulator --seeds 0:$(SEEDS)

check-set: $(VENV)/.dev
	@$(PY) -m tests.cluster.set_checker --flush ASYNC_FLUSH $(CHECK_SET_ARGS)
	@$(PY) -m tests.cluster.set_checker --flush SYNC_FLUSH $(CHECK_SET_ARGS)

fuzz: $(VENV)/.dev
	@$(PY) -m tests.fuzz.fuzz_run $(FUZZ_ARGS)

# The flags are those of cargo-fuzz, which itself needs a nightly compiler.
fuzz-lane: export RUSTFLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cdebug-assertions=on \
	-Coverflow-checks=on --cfg fuzzing
fuzz-lane: $(VENV)/.dev
	@mkdir -p fuzz-findings/lane
	@$(PY) -m tests.lane.mixes fuzz-findings/lane
	@target="$$(rustc -vV | sed -n 's/^host: //p')"; cd pocketmq/lane/crate/fuzz && cargo build --release --target "$$target" && \
	target/$$target/release/requests $(CURDIR)/fuzz-findings/lane -runs=$(FUZZ_RUNS) -max_len=6000 -len_control=0 \
		-artifact_prefix=$(CURDIR)/fuzz-findings/

damage: $(VENV)/.dev
	@$(PY) -m tests.broker.damage $(DAMAGE_ARGS)

bench: $(VENV)/.spark
	@$(PY) -m bench.run $(BENCH_ARGS)

bench-many: $(VENV)/.spark
	@$(PY) -m bench.many $(BENCH_ARGS)

bench-delay: $(VENV)/.spark
	@$(PY) -m bench.delay $(BENCH_ARGS)

bench-spark: $(VENV)/.spark jar
	@$(PY) -m bench.spark_read $(BENCH_ARGS)

bench-spark-sizes: $(VENV)/.spark jar
	@$(PY) -m bench.spark_sizes $(SPARK_FOLDER) $(BENCH_ARGS)

bench-spark-damage: $(VENV)/.spark jar
	@$(PY) -m bench.spark_sizes.damaged $(SPARK_FOLDER) $(BENCH_ARGS)

bench-store: $(VENV)/.spark
	@$(PY) -m bench.store $(BENCH_ARGS)

bench-replication: $(VENV)/.spark
	@$(PY) -m bench.replication $(BENCH_ARGS)

bench-grpc: $(VENV)/.spark
	@$(PY) -m bench.grpc $(BENCH_ARGS)

bench-clients: $(VENV)/.dev
	@$(PY) -m bench.clients $(BENCH_ARGS)

bench-hostile: $(VENV)/.spark
	@$(PY) -m bench.hostile $(BENCH_ARGS)

check-image: $(VENV)/.dev
	@$(PY) -m tests.deploy.image_root build/image $(IMAGE_ARGS)

build/release-tools: deploy/release/requirements.txt | $(VENV)/bin/pip
	@$(PY) -m venv --clear $@ && $@/bin/pip install -q --disable-pip-version-check -r $< && touch $@

release: build/release-tools jar
	@$</bin/python deploy/release/release.py $(RELEASE_ARGS)

clean:
	rm -rf $(VENV) build dist demo-store bench-store bench/loadgen/loadgen *.egg-info pocketmq/lane/_lane*.so pocketmq/lane/crate/target pocketmq/lane/crate/fuzz/target fuzz-findings .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
