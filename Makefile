# The commands a person types. Each installs the packages it needs, configures, builds, and then runs.
#   make serve   serves the bundled model on http://127.0.0.1:8080; FLAGS="--model DIR ..." for more
#   make demo    answers bundled prompts with the bundled model, cache on and cache off
#   make test    every test
#   make build   build/release only
#   make bench   every benchmark, each figure beside its bound, then a table; BENCHES="gemm engine" for some,
#                FLAGS="--runs 3 --write docs/PERFORMANCE.md" for the document
#   make check   format, lint, sanitizers (what .ci/run adds to make test)

# A compiler cache finds an object wherever the checkout lies.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

JOBS ?= $(shell nproc)
BUILD := build/release

.PHONY: serve demo test build bench check packages configure fuzz long

serve: build
	@$(BUILD)/stemma serve $(FLAGS)

demo: build
	@tools/demo $(BUILD)/stemma

test: build
	@ctest --test-dir $(BUILD) --parallel $(JOBS) --output-on-failure --no-tests=error

build: configure
	@cmake --build $(BUILD) --parallel $(JOBS)

bench: build
	@tools/performance_tables.py --run $(BUILD)/stemma --out $(BUILD)/bench $(FLAGS) $(BENCHES)

check: packages
	@tools/check

configure: packages
	@cmake --preset release >$(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }

packages:
	@mkdir -p build
	@tools/install_packages

# 30 seconds a fuzz target; FUZZ_SECONDS=600 for the long mode.
fuzz: packages
	@tools/fuzz

# The long modes of the random tests (docs/TESTING.md); an hour or more.
long: build
	@STEMMA_LONG_TESTS=1 ctest --test-dir $(BUILD) --output-on-failure --no-tests=error --timeout 7200
