# Every target sets up its own environment: a machine with Python 3.11+, make and git is enough.
SHELL := /bin/bash -eu -o pipefail
.DEFAULT_GOAL := help

# aws-cdk's modules are megabytes of Python: without byte code every synthesis parses them again.
unexport PYTHONDONTWRITEBYTECODE
# onnxruntime, a dependency of faster-whisper, otherwise sends telemetry to its vendor.
export ORT_DISABLE_TELEMETRY := 1
# Debian's users have no sbin in their PATH, where its nginx, dnsmasq and ethtool are.
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/node_modules/.bin:$(PATH):/usr/sbin:/sbin

UV_VERSION := 0.13.8
UV := .tools/bin/uv
# Dependencies of `voice`; packages of the checks and tests; packages that few tests need.
SETUP := .venv/.ready
DEV := .venv/.dev
FUZZ := .venv/.fuzz
MUTANTS := .venv/.mutants
VOICE_PATH := .venv/.voice-path
COMPILED := .venv/.compiled
CHECKOV := .tools/checkov/.ready
AZURITE := .tools/azurite/.ready
BENCH_VAD := .tools/bench/.ready
FRAMEWORKS := .tools/frameworks/.ready
AGENT := .tools/agent/.ready
ENGINES_SETUP := .tools/engines/.ready
INSTALL := images/vad-dataplane/tests/install.sh
# Fifty simultaneous calls need all cores of a machine; the other tests mostly wait for speech.
DRAIN := tests/voice/test_drain.py
# Engine tests of each change: every rendered command line, and one engine.
ENGINES := whole
# One pod for all files of the cell; it uses the ports of its manifest.
ENGINES_POD := tests/engines/test_cell.py tests/engines/test_cell_scaling.py tests/engines/test_cell_stops.py
ENGINES_TESTS_short := tests/engines/test_commands.py tests/engines/test_one_engine.py
ENGINES_TESTS_whole := tests/engines $(ENGINES_POD:%=--ignore=%)
# Tests that need additional packages, even to be collected, have separate targets.
OWN_TOOLS := tests/voice tests/engines
# CI shares its cores with other work: tests that failed there run once more, one at a time. The output contains both
# runs, and a second failure ends the run.
repeat_failed = $(if $(CI),|| pytest --last-failed --last-failed-no-failures none --maxfail 1 $(1))
# Machines of tests/machines.sh.
MACHINES := older-cpu single-core busy-cores
# Build variants in which the data plane is tested (images/vad-dataplane/tests/run.sh).
TESTED := program address,undefined

.PHONY: help setup dev demo demo-page demo-agent test linters types pytest test-machines test-nightly test-search test-native test-arm64 test-mutants test-voice test-engines images refresh-engines refresh-azure-types sandbox rehearse-hosts bench-cli bench-dataplane bench-vad bench-voice bench-gateway bench-simulate baseline generate docs lint format lock clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 21

setup: $(SETUP) ## Install what `voice` needs into this folder

dev: $(DEV) ## Install the packages of the checks and tests as well

$(UV):
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(SETUP): $(UV) pyproject.toml uv.lock package.json package-lock.json
	$(UV) sync --frozen --all-extras --no-default-groups --inexact --quiet
	npm ci --no-audit --no-fund --loglevel=error
	touch $@

$(DEV): $(SETUP)
	$(UV) sync --frozen --all-extras --inexact --quiet
	touch $@

$(FUZZ) $(MUTANTS) $(VOICE_PATH): .venv/.%: $(DEV)
	$(UV) sync --frozen --all-extras --inexact --quiet --group $*
	touch $@

# Byte code of the tests' imports: parallel processes would each compile it.
$(COMPILED): $(DEV)
	pytest --collect-only --quiet --quiet $(OWN_TOOLS:%=--ignore=%) | tail -n 3
	touch $@

# checkov pins libraries that conflict with the project's, so it has a separate environment. Azure Storage's emulator is
# 365 MB: only the nightly test of the archive needs it.
$(AZURITE): images/gateway/tests/azurite/package-lock.json
	mkdir -p .tools/azurite
	cp images/gateway/tests/azurite/package*.json .tools/azurite
	npm ci --prefix .tools/azurite --ignore-scripts --no-audit --no-fund
	touch $@

$(CHECKOV): $(UV) tests/checkov/requirements.txt
	$(UV) venv --quiet --clear .tools/checkov
	$(UV) pip sync --quiet --require-hashes --python .tools/checkov/bin/python tests/checkov/requirements.txt
	touch $@

# Voice agent frameworks, to test their speech recognition: their versions need not match ours.
$(FRAMEWORKS): $(UV) tests/voice/frameworks/requirements.txt
	$(UV) venv --quiet --clear .tools/frameworks
	$(UV) pip sync --quiet --require-hashes --python .tools/frameworks/bin/python tests/voice/frameworks/requirements.txt
	touch $@

# Only the demo uses its engines and weights (0.45 GB), and its voice is under the GPL: a separate environment.
$(AGENT): $(UV) voice_ops/demo/agent/requirements.txt voice_ops/demo/agent/weights.txt
	$(UV) venv --quiet --clear .tools/agent
	$(UV) pip sync --quiet --require-hashes --python .tools/agent/bin/python $(filter %.txt,$^)
	touch $@

# The deployed engines, built for CPUs, take 3 GB with torch: a separate environment.
$(ENGINES_SETUP): $(UV) voice_sandbox/engines/install.sh voice_sandbox/engines/requirements.txt
	UV=$(UV) voice_sandbox/engines/install.sh $(@D)

# Only this benchmark uses the competitors' packages: a separate environment. Silero requires torch, which its ONNX
# model does not use.
$(BENCH_VAD): $(UV) bench/vad/requirements.txt bench/vad/silero.txt
	$(UV) venv --quiet --clear .tools/bench
	$(UV) pip sync --quiet --require-hashes --python .tools/bench/bin/python bench/vad/requirements.txt bench/vad/silero.txt
	touch $@

test: $(DEV) ## Run every check and test
	missing=$$($(INSTALL) --if-possible tests/packages.txt); export VOICE_MISSING_PACKAGES="$$missing"; \
	$(MAKE) --jobs=2 linters types pytest; \
	test -z "$$missing" || echo "passed without the tests that need $$missing: they are listed as skipped above"

linters: $(DEV)
	ruff check .
	ruff format --check .
	yamllint --strict .
	shellcheck $$(git ls-files '*.sh' .ci)
	hadolint images/*/Dockerfile
	actionlint
	zizmor --offline --quiet .github

# In parallel, because the tests mostly wait for processes and timers; without its cache mypy keeps one core busy for
# minutes. CI has no cache and saves none.
types: $(DEV)
	mypy $(if $(CI),--cache-dir=/dev/null)

# Four on two cores: a third of the tests' time is spent waiting for programs and timers.
pytest: $(COMPILED)
	pytest -n 4 --dist loadfile --no-loadscope-reorder $(OWN_TOOLS:%=--ignore=%) $(call repeat_failed,$(OWN_TOOLS:%=--ignore=%))

test-nightly: $(DEV) $(FUZZ) $(CHECKOV) $(AZURITE) ## Run the tests that are too long for every change
	$(INSTALL) tests/packages.txt voice_sandbox/hosts/packages.txt
	pytest -m nightly $(OWN_TOOLS:%=--ignore=%) $(ARGS)

test-search: $(DEV) ## Look for new examples that break a property
	VOICE_SEARCH=1 pytest -n 4 --dist loadfile --no-loadscope-reorder $$(git grep -lE '^from hypothesis' 'tests/*test_*.py' 'images/*test_*.py')

test-machines: $(DEV) ## Run TESTS on MACHINES: older-cpu, single-core, busy-cores
	$(INSTALL) tests/packages.txt
	tests/machines.sh "$(MACHINES)" $(OWN_TOOLS:%=--ignore=%) $(TESTS)

test-native: $(DEV) ## Build the data plane and test it (as root)
	images/vad-dataplane/tests/run.sh $(TESTED)

test-arm64: ## Cross-compile the data plane for arm64; test it emulated
	images/vad-dataplane/cross/run.sh

test-mutants: $(MUTANTS) ## Change the sources and see that a test fails; ARGS=--help
	python -m tests.mutants $(ARGS)

test-voice: $(VOICE_PATH) $(if $(ARGS),$(FRAMEWORKS) $(AGENT)) ## Test the voice path: real processes, faults, a browser
	$(INSTALL) tests/voice/packages.txt
	pytest -n 2 --dist loadfile --no-loadscope-reorder tests/voice --ignore $(DRAIN) $(ARGS) $(call repeat_failed,tests/voice --ignore $(DRAIN) $(ARGS))
	pytest $(DRAIN) $(ARGS) $(call repeat_failed,$(DRAIN) $(ARGS))

# In parallel: half of an engine's start is imports, on one core.
test-engines: $(DEV) $(ENGINES_SETUP) ## Test the deployed engines on this CPU; ENGINES=short
	$(INSTALL) tests/engines/packages.txt
	pytest -n 2 --dist loadfile --no-loadscope-reorder $(or $(ENGINES_TESTS_$(ENGINES)),$(error ENGINES is short or whole)) $(ARGS)
	$(if $(filter whole,$(ENGINES)),pytest $(ENGINES_POD) $(ARGS))

demo: $(DEV) ## Speak a sample through gateway, VAD and Whisper here
	$(INSTALL) tests/packages.txt
	python -m voice_ops.demo

demo-page: $(DEV) ## The same, with a page to speak into
	$(INSTALL) tests/packages.txt
	python -m voice_ops.demo --page

demo-agent: $(DEV) $(AGENT) $(if $(findstring --engines,$(ARGS)),$(ENGINES_SETUP)) ## Hold a spoken conversation here; ARGS=--page for a page
	$(INSTALL) tests/packages.txt
	python -m voice_ops.demo.agent $(ARGS)

sandbox: $(SETUP) ## Rehearse both clouds on this machine, without an account
	voice sandbox deployments/sandbox.yaml
	voice sandbox deployments/production-azure.yaml

rehearse-hosts: $(DEV) ## Boot VAD hosts in virtual machines (as root, on Debian)
	$(INSTALL) voice_sandbox/hosts/packages.txt
	voice sandbox --hosts deployments/hosts.yaml

images: $(DEV) ## Build and run the images that need no registry (as root)
	voice images rehearse $(IMAGES)

bench-cli: $(DEV) ## Time the commands beside python and an empty CDK app
	python -m bench.cli

bench-dataplane: $(DEV) ## Time the data plane beside rivals and goals; ARGS=--goals
	python -m bench.dataplane $(ARGS)

bench-vad: $(BENCH_VAD) ## Measure the VAD's cost, and its quality beside rivals
	$(INSTALL) bench/vad/packages.txt
	.tools/bench/bin/python -m bench.vad

bench-voice: $(DEV) ## Measure the voice path beside the last commit; ARGS=--quick
	$(INSTALL) tests/packages.txt
	python -m bench.voice $(ARGS)

bench-gateway: $(DEV) ## Measure what a call costs a gateway process
	python -m bench.gateway

bench-simulate: $(DEV) ## Time the simulation of a million calls
	python -m bench.simulate

baseline: $(DEV) ## Record what upgrades can replace, as release VERSION
	python -m tests.releases.record $(VERSION)

# Files determined by the code, the templates and the shipped files. A test of each fails while it is outdated.
generate: $(DEV) ## Write everything that is generated
	voice schema > deployments/schema.json
	python -m voice_ops.reference
	voice diagram deployments/production-us-east-1.yaml --output docs/architecture.svg
	UPDATE_GOLDEN=1 pytest --quiet tests/blueprint/launch tests/blueprint/checks -k "golden or table"
	VOICE_WRITE_SCREENS=1 pytest --quiet tests/ops/test_screens.py
	VOICE_WRITE_SCREENS=1 pytest --quiet tests/test_docs.py -k sample_output

docs: $(DEV) ## Build the documentation as a site into build/site
	zensical build --clean --strict
	cp node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js build/site/assets/javascripts/

refresh-engines: $(DEV) ## Read the engines' published releases again
	python -m tools.engine_tables

refresh-azure-types: $(SETUP) ## Read Azure's definitions again
	test -d build/bicep-types-az || git clone --filter=blob:none --no-checkout https://github.com/Azure/bicep-types-az build/bicep-types-az
	python -m tools.azure_types build/bicep-types-az

lint: linters types ## Run the static checks alone

format: $(DEV) ## Format the code
	ruff check --fix .
	ruff format .

lock: $(DEV) ## Refresh the lock files after a change of a pinned version
	$(UV) lock
	npm install --package-lock-only
	$(UV) pip compile --quiet --generate-hashes --python-version 3.11 tests/checkov/requirements.in \
		--output-file tests/checkov/requirements.txt
	$(UV) pip compile --quiet --generate-hashes --python-version 3.11 tests/voice/frameworks/requirements.in \
		--output-file tests/voice/frameworks/requirements.txt
	$(UV) pip compile --quiet --generate-hashes --python-version 3.11 voice_ops/demo/agent/requirements.in \
		--output-file voice_ops/demo/agent/requirements.txt
	$(UV) pip compile --quiet --no-deps --generate-hashes --python-version 3.11 voice_ops/demo/agent/weights.in \
		--output-file voice_ops/demo/agent/weights.txt
	$(UV) pip compile --quiet --no-deps --generate-hashes --python-version 3.11 voice_sandbox/engines/requirements.in \
		--output-file voice_sandbox/engines/requirements.txt
	python -m voice_ops.images.locks
	python -m voice_ops.images.snapshots
	python -m voice_ops.images.licenses

clean: ## Remove what the other targets made
	rm -rf .venv .tools node_modules cdk.out build dist
