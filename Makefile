# make demo, make test: from nothing but a Python (3.11 or 3.12), a C++17 compiler and this Makefile.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --no-deps
INSTALLED := $(VENV)/.installed
export TOPHUB_LOCATION := NONE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start many Python processes, each of which would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE
# Two workers; a file's tests run in one of them, and tests marked `alone` by themselves.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -q -rs -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

PYTHONS := tvm_codl tests benchmarks tutorials rpc_apps docs
NATIVE = $(shell find tvm_codl/runtime/native tests/runtime rpc_apps/cpp_rpc -name '*.h' -o -name '*.cc')

.PHONY: demo docs test test-slow lint format lock install clean arm64 app android-shell clang browser

demo: $(INSTALLED)
	$(BIN)/tvm-codl demo

# The variable silences Material's notice about the future of MkDocs.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: $(INSTALLED) arm64 app android-shell browser
	$(PYTEST) -m "not slow" tests

test-slow: $(INSTALLED) arm64 app android-shell browser clang
	$(BIN)/python -m tests.slow

lint: $(INSTALLED)
	$(BIN)/ruff check $(PYTHONS)
	$(BIN)/ruff format --check $(PYTHONS)
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(NATIVE)

format: $(INSTALLED)
	$(BIN)/ruff check --fix $(PYTHONS)
	$(BIN)/ruff format $(PYTHONS)
	$(BIN)/clang-format -i $(NATIVE)

install: $(INSTALLED)

# The emulated arm64 phone: cross compiler, emulator, and an OpenCL for it.  As root they are installed where they are
# missing; where they cannot be, the tests that need them are skipped and say so.
ARM64_FILES := $(or $(CODL_ARM64_SYSROOT),$(or $(TVM_CODL_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tvm_codl)/arm64-sysroot)
arm64:
	@docker/install/arm64.sh && docker/install/arm64_opencl.sh "$(ARM64_FILES)" || true

# What the Android app is built and tested with, likewise.
app:
	@docker/install/app.sh || true

# Android's shell, which the commands of `tvm-codl device` talk to, likewise.
android-shell:
	@docker/install/android_shell.sh || true

# The browser that opens reports, likewise.
browser:
	@docker/install/browser.sh || true

# A second compiler for the plugin, likewise.
clang:
	@docker/install/clang.sh || true

# What compiling the native part needs: it begins when these are here, and the others are installed meanwhile.
NATIVE_NEEDS := attrs|cmake|decorator|filelock|ml-dtypes|ninja|numpy|platformdirs|psutil|scipy|typing-extensions|xtc-.*
# --no-deps: the lock file is complete but for what rapidocr-onnxruntime and mediapipe ask for and only their own code
# uses, which is never imported: the packages are here for the networks that they carry.  --no-compile: what commands import
# is a small part.  It is compiled here, for those who tell Python to write no bytecode: each command took seconds longer.
$(INSTALLED): requirements.lock setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -nE '/^($(NATIVE_NEEDS))==/,/[^\\]$$/p' requirements.lock > $(VENV)/native.lock
	$(PIP) --no-compile --require-hashes -r $(VENV)/native.lock
	$(BIN)/python -m tvm_codl.runtime.compile & compiling=$$!; \
	    $(PIP) --no-compile --require-hashes -r requirements.lock && wait $$compiling
	$(PIP) --no-build-isolation -e .
	$(BIN)/python -c 'import tvm_codl.api, tvm_codl.cli.plan, tvm_codl.device.reference.server, tvm_codl.frontend.load'
	touch $@

# Not in requirements.in: it asks for a protobuf that is too old for the rest.
MEDIAPIPE := mediapipe==0.10.14
RAPIDOCR_ONLY := opencv-python pyclipper shapely six
lock:
	$(BIN)/pip-compile --quiet --generate-hashes --no-header --no-annotate --strip-extras --no-emit-index-url \
	    --no-emit-find-links --no-emit-trusted-host $(foreach p,pip $(RAPIDOCR_ONLY),--unsafe-package $(p)) \
	    -o requirements.lock requirements.in
	sed -i '/^# WARNING/,$$d' requirements.lock
	for python in 3.11 3.12; do $(BIN)/pip download -q --no-deps --only-binary :all: --platform manylinux2014_x86_64 \
	    --python-version $$python -d build/lock '$(MEDIAPIPE)' || exit; done
	{ printf '%s' '$(MEDIAPIPE) ; python_version < "3.13"'; for wheel in build/lock/mediapipe-*.whl; do \
	    printf ' \\\n    --hash=sha256:%s' $$(sha256sum < $$wheel | cut -d ' ' -f 1); done; echo; } >> requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info .ruff_cache .mypy_cache .hypothesis
	find tvm_codl tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
