# Every target does its own set-up: a machine with Python 3.11+, make and git is enough.
SHELL := /bin/bash -eu -o pipefail
.DEFAULT_GOAL := help

# aws-cdk's modules are megabytes of Python: without byte code every synth parses them again.
unexport PYTHONDONTWRITEBYTECODE
# onnxruntime, which faster-whisper brings along, tells its maker about itself.
export ORT_DISABLE_TELEMETRY := 1
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/node_modules/.bin:$(PATH)

UV_VERSION := 0.13.8
UV := .tools/bin/uv
SETUP := .venv/.ready
COMPILED := .venv/.compiled
CHECKOV := .tools/checkov/.ready
BENCH_VAD := .tools/bench/.ready
FRAMEWORKS := .tools/frameworks/.ready
AGENT := .tools/agent/.ready
INSTALL := images/vad-dataplane/tests/install.sh
# Fifty calls at once need a machine's cores for themselves; the other tests mostly wait for people to speak.
DRAIN := tests/voice/test_drain.py
# How the data plane is tested (images/vad-dataplane/tests/run.sh).
TESTED := program address,undefined

.PHONY: help setup demo demo-page demo-agent test linters types pytest test-machines test-nightly test-native test-arm64 test-mutants test-voice images refresh-engines refresh-azure-types sandbox rehearse-hosts bench-cli bench-dataplane bench-vad bench-voice bench-gateway bench-simulate diagram baseline schema reference docs lint format lock clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(SETUP) ## Install Python packages, Node and the CDK CLI into this folder

$(UV):
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(SETUP): $(UV) pyproject.toml uv.lock package.json package-lock.json
	$(UV) sync --frozen --all-extras --quiet
	npm ci --no-audit --no-fund --loglevel=error
	touch $@

# Byte code of what the tests import: processes that start beside each other would each make it.
$(COMPILED): $(SETUP)
	pytest --collect-only --quiet --quiet | tail -n 3
	touch $@

# checkov pins libraries that the project has outgrown: an environment of its own.
$(CHECKOV): $(UV) tests/checkov/requirements.txt
	$(UV) venv --quiet --clear .tools/checkov
	$(UV) pip sync --quiet --require-hashes --python .tools/checkov/bin/python tests/checkov/requirements.txt
	touch $@

# Frameworks of voice agents, for tests of what they hear: their versions need not agree with ours.
$(FRAMEWORKS): $(UV) tests/voice/frameworks/requirements.txt
	$(UV) venv --quiet --clear .tools/frameworks
	$(UV) pip sync --quiet --require-hashes --python .tools/frameworks/bin/python tests/voice/frameworks/requirements.txt
	touch $@

# The demo's engines and weights, 0.45 GB, are nobody else's, and its voice is GPL: an environment of its own.
$(AGENT): $(UV) ops/demo/agent/requirements.txt ops/demo/agent/weights.txt
	$(UV) venv --quiet --clear .tools/agent
	$(UV) pip sync --quiet --require-hashes --python .tools/agent/bin/python $(filter %.txt,$^)
	touch $@

# The rivals' packages are nobody else's: an environment of its own. Silero asks for torch, and its ONNX model does not.
$(BENCH_VAD): $(UV) bench/vad/requirements.txt bench/vad/silero.txt
	$(UV) venv --quiet --clear .tools/bench
	$(UV) pip sync --quiet --require-hashes --python .tools/bench/bin/python bench/vad/requirements.txt bench/vad/silero.txt
	touch $@

test: $(SETUP) ## Run every check and test
	$(INSTALL) tests/packages.txt
	$(MAKE) --jobs=2 linters types pytest

linters: $(SETUP)
	ruff check .
	ruff format --check .
	yamllint --strict .
	shellcheck $$(git ls-files '*.sh' .ci)
	hadolint images/*/Dockerfile
	actionlint
	zizmor --offline --quiet .github

# Beside each other: much of the tests' time is spent waiting, for programs that start
# and for time to pass; without its cache mypy keeps one core busy for minutes. CI, which has none, leaves none.
types: $(SETUP)
	mypy $(if $(CI),--cache-dir=/dev/null)

# Four on two cores: programs that start and time that passes are a third of what the tests take.
pytest: $(COMPILED)
	pytest -n 4 --dist loadfile --no-loadscope-reorder --ignore tests/voice

test-nightly: $(SETUP) $(CHECKOV) ## The tests that are too long for every change
	$(INSTALL) tests/packages.txt sandbox/hosts/packages.txt
	pytest -m nightly --ignore tests/voice

test-machines: $(SETUP) ## Run the Python tests (TESTS=...) as an older CPU, a single core and busy cores would
	$(INSTALL) tests/packages.txt
	tests/machines.sh --ignore tests/voice $(TESTS)

test-native: $(SETUP) ## Build the data plane and test it: units, sanitizers, end to end (as root)
	images/vad-dataplane/tests/run.sh $(TESTED)

test-arm64: ## Cross-compile the data plane for arm64 and test it under emulation
	images/vad-dataplane/cross/run.sh

test-mutants: $(SETUP) ## Change the sources one place at a time and see that a test fails; ARGS as `python -m tests.mutants --help`
	python -m tests.mutants $(ARGS)

test-voice: $(SETUP) $(if $(ARGS),$(FRAMEWORKS) $(AGENT)) ## The whole voice path with real processes: faults, a drain, the page in a browser
	$(INSTALL) tests/voice/packages.txt
	pytest -n 2 --dist loadfile --no-loadscope-reorder tests/voice --ignore $(DRAIN) $(ARGS)
	pytest $(DRAIN) $(ARGS)

demo: $(SETUP) ## Speech in, transcript out on this machine: store, gateway, VAD, Whisper
	$(INSTALL) tests/packages.txt
	python -m ops.demo

demo-page: $(SETUP) ## The same, with a page to speak into
	$(INSTALL) tests/packages.txt
	python -m ops.demo --page

demo-agent: $(SETUP) $(AGENT) ## A spoken conversation on this machine, with small real models; ARGS=--page to talk to it
	$(INSTALL) tests/packages.txt
	python -m ops.demo.agent $(ARGS)

sandbox: $(SETUP) ## Rehearse both clouds: deploy to a local AWS, drill it, tear it down; run the Pulumi programs
	voice sandbox deployments/sandbox.yaml
	voice sandbox deployments/production-azure.yaml

rehearse-hosts: $(SETUP) ## Boot a VAD host in an emulated machine, call through it, drain it (as root, on Debian)
	$(INSTALL) sandbox/hosts/packages.txt
	voice sandbox --hosts deployments/hosts.yaml

images: $(SETUP) ## Build and run the images that need no registry, on a Debian made here (as root)
	voice images rehearse $(IMAGES)

bench-cli: $(SETUP) ## What the commands take, beside python, pydantic and an empty CDK app
	python -m bench.cli

bench-dataplane: $(SETUP) ## Time the data plane's stages beside their rivals
	python -m bench.dataplane

bench-vad: $(BENCH_VAD) ## Cost of the VAD, and its quality beside Silero and webrtcvad
	$(INSTALL) bench/vad/packages.txt
	.tools/bench/bin/python -m bench.vad

bench-voice: $(SETUP) ## The voice path's goals beside the commit before, then its layouts; ARGS=--quick for the goals alone
	$(INSTALL) tests/packages.txt
	python -m bench.voice $(ARGS)

bench-gateway: $(SETUP) ## What one gateway process takes for a call
	python -m bench.gateway

bench-simulate: $(SETUP) ## Simulate a day of a million calls, in bulk beside one by one
	python -m bench.simulate

diagram: $(SETUP) ## Draw docs/architecture.svg anew, from the templates
	voice diagram deployments/production-us-east-1.yaml --output docs/architecture.svg

baseline: $(SETUP) ## Record what the shipped files make, as the release VERSION that later ones are compared with
	tests/releases/record.sh $(VERSION)

schema: $(SETUP) ## Write deployments/schema.json and docs/deployment-file.md anew, from the model
	voice schema > deployments/schema.json
	voice schema --markdown > docs/deployment-file.md

reference: $(SETUP) ## Write docs/reference anew, from the commands, the checks and the session API
	python -m ops.reference

docs: $(SETUP) ## Build the documentation as a site into build/site; a broken link is an error
	zensical build --clean --strict

refresh-engines: $(SETUP) ## Read the engines' published releases again, into blueprint/engines/published/tables
	python -m ops.engine_tables

refresh-azure-types: $(SETUP) ## Read Azure's definitions of what is deployed there again, into sandbox/azure/definitions.json
	test -d build/bicep-types-az || git clone --filter=blob:none --no-checkout https://github.com/Azure/bicep-types-az build/bicep-types-az
	python -m ops.azure_types build/bicep-types-az

lint: $(SETUP) ## Run the static checks alone
	pre-commit run --all-files

format: $(SETUP) ## Format the code
	ruff check --fix .
	ruff format .

lock: $(SETUP) ## Refresh the lock files after a change of a pinned version
	$(UV) lock
	npm install --package-lock-only
	$(UV) pip compile --quiet --generate-hashes --python-version 3.11 tests/checkov/requirements.in \
		--output-file tests/checkov/requirements.txt
	$(UV) pip compile --quiet --generate-hashes --python-version 3.11 tests/voice/frameworks/requirements.in \
		--output-file tests/voice/frameworks/requirements.txt
	$(UV) pip compile --quiet --generate-hashes --python-version 3.11 ops/demo/agent/requirements.in \
		--output-file ops/demo/agent/requirements.txt
	$(UV) pip compile --quiet --no-deps --generate-hashes --python-version 3.11 ops/demo/agent/weights.in \
		--output-file ops/demo/agent/weights.txt
	python -m ops.images.locks

clean: ## Remove what the other targets made
	rm -rf .venv .tools node_modules cdk.out build dist
