# Thin: Meson and Ninja build, tools/ holds the rest. Each target installs the Debian packages it needs when they are missing.
BUILD ?= build
BUILD_SAN ?= build-san
BUILD_BENCH ?= build-bench
FUZZ_SECONDS ?= 60
OPERATIONS ?= 1000000
SQLITE_SEEDS ?= 200
SEED ?= 1
SWEEP ?= 500
RELEASE = --buildtype=release -Doptimization=2 -Db_lto=true -Db_pie=true
# For the sum of compiling and running. -Og and line numbers only: with both sanitizers the compiler takes half the time of -O1, the tests
# a sixth more. Not position-independent: 400,000 relocations of the sanitizers' tables took a sixth of each start of a program.
DEBUG_SAN = --buildtype=debugoptimized -Doptimization=g -Dc_args=-g1 -Db_sanitize=address,undefined -Db_pie=false -Db_staticpic=false \
	-Dc_link_args=-no-pie -Dmarks=true

.PHONY: all build build-tests demo test simulate sweep scenarios mutate model bench bench-sqlite bench-postgresql bench-mcp fuzz format format-check lint install clean

all: build

build:
	@sh tools/setup.sh build
	@sh tools/build.sh $(BUILD) $(RELEASE) -Dtests=false
	@echo "built $(BUILD)/src/cli/onced"

demo: build
	@sh tools/setup.sh demo
	@ONCED=$(abspath $(BUILD))/src/cli/onced python3 demo/demo.py

# What the end-to-end tests need comes from the network while the compiler works
build-tests:
	@sh tools/setup.sh build test
	@sh tools/e2e-setup.sh & setup=$$!; sh tools/build.sh $(BUILD_SAN) $(DEBUG_SAN); built=$$?; \
		wait $$setup && exit $$built

test: build-tests
	@test/e2e/.venv/bin/python tools/run-suites.py $(BUILD_SAN)

# Fault sweeps at length: SWEEP points of each (a quarter of an hour), SWEEP=full for every one (hours)
sweep: build-tests
	@ONCED_SOURCE=$(CURDIR) ONCED_SWEEP=$(SWEEP) $(BUILD_SAN)/test/sweep/sweep_ledger
	@ONCED_SOURCE=$(CURDIR) ONCED_SWEEP=$(SWEEP) $(BUILD_SAN)/test/sweep/sweep_memory
	@ONCED_SWEEP=$(SWEEP) ONCED=$(abspath $(BUILD_SAN))/src/cli/onced test/e2e/.venv/bin/python -B -m pytest -q -s \
		-p no:cacheprovider test/e2e/test_sweep.py test/e2e/test_kill_points.py

# The simulator: OPERATIONS under all faults that break no contract, a quarter as many under all faults, SQLITE_SEEDS runs on a
# ledger file, in memory where there is /dev/shm: what a disk's flushes take would be most of the time (a minute on two cores).
# SIMULATOR names another build's program
simulate: $(if $(SIMULATOR),,build)
	@$(or $(SIMULATOR),$(BUILD)/src/cli/onced) simulate --seed $(SEED) --operations $(OPERATIONS) --faults contract
	@$(or $(SIMULATOR),$(BUILD)/src/cli/onced) simulate --seed $(SEED) --operations $$(($(OPERATIONS) / 4 + 1)) --faults all
	@TMPDIR=$${TMPDIR:-$$(test -w /dev/shm && echo /dev/shm || echo /tmp)} \
		$(or $(SIMULATOR),$(BUILD)/src/cli/onced) simulate --seed $(SEED) --seeds $(SQLITE_SEEDS) --faults all --ledger sqlite

scenarios: build-tests
	@test/e2e/.venv/bin/python tools/scenarios.py $(BUILD_SAN)

mutate:
	@sh tools/setup.sh build test
	@python3 tools/mutate.py $(MUTATE_ARGS)

# The protocol model, every reachable state; MODEL=full takes the large configurations too
model:
	@sh tools/setup.sh model
	@test/model/check.sh

bench: bench-sqlite bench-postgresql

bench-sqlite:
	@sh tools/setup.sh build bench
	@sh tools/build.sh $(BUILD_BENCH) $(RELEASE)
	@ONCED=$(abspath $(BUILD_BENCH))/src/cli/onced python3 test/bench/bench.py --build $(abspath $(BUILD_BENCH)) $(BENCH_ARGS)

# A server of its own with default settings, which syncs to the disk
bench-postgresql:
	@sh tools/setup.sh build bench
	@sh tools/build.sh $(BUILD_BENCH) $(RELEASE)
	@POSTGRES_OPTIONS="-c fsync=on" sh tools/with-postgres.sh python3 test/bench/bench_pg.py --build $(abspath $(BUILD_BENCH)) $(BENCH_PG_ARGS)

# An MCP tools/call through onced beside the same call without it
bench-mcp:
	@sh tools/setup.sh build bench
	@sh tools/build.sh $(BUILD_BENCH) $(RELEASE)
	@ONCED=$(abspath $(BUILD_BENCH))/src/cli/onced python3 test/bench/bench_mcp.py --build $(abspath $(BUILD_BENCH)) $(BENCH_ARGS)

fuzz:
	@sh tools/setup.sh build lint test
	@FUZZ_SECONDS=$(FUZZ_SECONDS) sh tools/fuzz.sh

format:
	@sh tools/setup.sh lint
	@git ls-files '*.c' '*.h' | xargs clang-format -i

format-check:
	@sh tools/setup.sh lint
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

lint:
	@sh tools/setup.sh build test lint
	@sh tools/lint.sh

install: build
	@meson install -C $(BUILD)

clean:
	@rm -rf build build-* test/e2e/.venv test/e2e/node_modules
