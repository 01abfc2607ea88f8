# What a newcomer types. Each target installs what it needs into .venv, once, from nothing but Python >= 3.11.
#   make demo [ENDPOINT=https://…  BUCKET=…]   train from a bucket (by default one that it makes on this machine)
#   make llm [ENDPOINT=https://…  BUCKET=…]    from text to a language model, killed twice and resumed on other ranks
#   make torchtitan    torchtitan's debug model from a bucket, killed three times, in an environment of its own
#   make test [PENSTOCK_JOBS=0]                the tests, in a process for each core and one more, four at most; 0: in one
#   make lint | bench | clean
#   make package       sdist and wheel in dist/, checked, and the wheel in a bare environment of each Python that is here
#   make platforms     tests of the core and Zarr on other Pythons, and with the lowest versions of libraries
#   make docs          the site in build/docs, with notebooks run, links checked, and pages looked at in Chromium
#   make api           accept a change of the public names and signatures (tests/public_api.txt)
#   make simulate [FIRST=… SEEDS=…]  scenarios over a simulated store in virtual time, two minutes of new seeds by default
#   make soak [PENSTOCK_SEED=…]                the random tests with more examples and kills, and the slow ones
PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --quiet --quiet --disable-pip-version-check
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
# Tests start hundreds of interpreters, and each would compile the package for itself.
unexport PYTHONDONTWRITEBYTECODE
SETUP := pyproject.toml constraints.txt

.PHONY: demo llm torchtitan test simulate lint package platforms docs api bench soak clean
.DELETE_ON_ERROR:

demo: .venv/demo.stamp
	@.venv/bin/penstock demo $(if $(ENDPOINT),--endpoint "$(ENDPOINT)") $(if $(BUCKET),--bucket "$(BUCKET)")

llm: .venv/llm.stamp
	@$(PY) -m examples.llm $(if $(ENDPOINT),--endpoint "$(ENDPOINT)") $(if $(BUCKET),--bucket "$(BUCKET)")

torchtitan: .venv-torchtitan/stamp
	@PENSTOCK_REQUIRE_TORCHTITAN=1 .venv-torchtitan/bin/python -m pytest -q -c /dev/null --rootdir . --noconftest tests/edges/test_torchtitan.py
	@.venv-torchtitan/bin/python -m examples.torchtitan $(if $(ENDPOINT),--endpoint "$(ENDPOINT)") $(if $(BUCKET),--bucket "$(BUCKET)")

test: PENSTOCK_JOBS ?= logical
test: .venv/dev.stamp
	@$(PY) -m pytest -n $(PENSTOCK_JOBS) --maxprocesses=4

lint: .venv/dev.stamp
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m codespell_lib README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md ARCHITECTURE.md docs design src examples
	@$(PY) -m mypy

package: .venv/dev.stamp
	@$(PY) -m tests.pythons.package $(TAG)

platforms: .venv/dev.stamp
	@$(PY) -m tests.pythons.platforms

docs: .venv/dev.stamp .venv/docs.stamp
	@$(PY) -m docs.site

api: .venv/dev.stamp
	@$(PY) -m tests.public_api
	@git --no-pager diff --stat -- tests/public_api.txt

bench: .venv/dev.stamp
	@$(PY) -m benchmarks
	@$(PY) -m benchmarks.bulk

simulate: .venv/dev.stamp
	@$(PY) -m tests.simulation $(FIRST) $(if $(SEEDS),--seeds $(SEEDS) --seconds 3600)

# With another seed each time: the header prints it, PENSTOCK_SEED=… repeats it. What draws nothing is `make test`'s.
soak: PENSTOCK_JOBS ?= logical
soak: PENSTOCK_SEED ?= $(shell date +%s)
soak: .venv/dev.stamp
	@PENSTOCK_SOAK=1 PENSTOCK_SEED=$(PENSTOCK_SEED) $(PY) -m pytest -m "random or slow" -n $(PENSTOCK_JOBS) --maxprocesses=4 --hypothesis-seed=$(PENSTOCK_SEED) \
	  -o faulthandler_timeout=1800

clean:
	@rm -rf .venv .venv-package .venv-torchtitan .venv-bare-* .venv-core-* .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find . -name __pycache__ -prune -exec rm -rf {} +

# An extra is installed beside what is there already, so `make demo` stays small and `make test` after it is quick.
.venv/%.stamp: $(SETUP) | .venv/bin/python
	@echo "setting up .venv for $* (once, some minutes at most)"
	@$(PIP) install --editable '.[$*]'
	@touch $@

# torchtitan pins versions of its own, of datasets and fsspec among others.
.venv-torchtitan/stamp: $(SETUP) examples/torchtitan/requirements.txt
	@echo "setting up .venv-torchtitan (once, some minutes)"
	@$(PYTHON) -m venv --clear .venv-torchtitan
	@PIP_CONSTRAINT= .venv-torchtitan/bin/python -m pip --quiet --disable-pip-version-check install \
	  --editable '.[cli,fsspec,s3,torch]' pytest -r examples/torchtitan/requirements.txt
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer: make PYTHON=…")'
	@$(PYTHON) -m venv .venv
