# Every target does the set-up it needs. Only python3.11 (or newer), git and make are assumed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
CORE := .venv/core
READY := .venv/ready
BROWSER := .venv/browser
SITE := .venv/site
WEB := .venv/web
# Modules stay compiled, whatever the environment says: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup lock golden mutants demo web test test-slow bench docs validation refits lint format release-check

setup: $(READY)

# The versions of uv.lock: by uv where it is there, by pip and the same versions as constraints where it is not.
# $(1): what uv installs of the extras, $(2): the package as pip names it.
define install
	if command -v uv >/dev/null; then \
	  uv venv --quiet --allow-existing --seed --python $(PYTHON) .venv && uv sync --quiet --frozen --inexact $(1); \
	else \
	  $(PYTHON) -m venv .venv && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '$(2)'; \
	fi
	touch $@
endef

# The planner alone: NumPy, SymPy, msgspec, PyYAML.
$(CORE): pyproject.toml uv.lock constraints.txt
	$(call install,--no-dev,.)

# And all that tests, docs and the JAX program need.
$(READY): $(CORE)
	$(call install,--extra dev,.[dev])

# After a change of the dependencies in pyproject.toml.
lock:
	uv lock
	uv export --quiet --frozen --extra dev --no-hashes --no-emit-project --no-annotate --no-header > constraints.txt

demo: $(CORE)
	$(BIN)/python examples/demo.py

# The page in a browser, on this machine alone.
$(WEB): $(CORE)
	$(call install,--no-dev --extra web,.[web])

web: $(WEB)
	$(BIN)/dscale web

# A Chromium for the tests of the page, tried once; they are skipped with the reason where none can be had.
$(BROWSER): $(READY)
	$(BIN)/python -m tools.set_up_browser
	touch $@

test: $(READY) $(BROWSER)
	$(BIN)/python -m pytest -n auto

test-slow: $(READY) $(BROWSER)
	$(BIN)/python -m pytest -n auto -m slow

# Draws random bugs in the planners' packages with Cosmic Ray, plants them one at a time, and sees whether tests notice: about an hour
# of CPU. Cosmic Ray has an environment of its own, since its dependencies are none of ours.
SEED ?= 1
mutants: $(READY)
	$(PYTHON) -m venv .venv/mutation && .venv/mutation/bin/python -m pip install --quiet --disable-pip-version-check cosmic-ray==8.7.0
	.venv/mutation/bin/python -m tools.draw_mutants --seed $(SEED) --out .venv/mutants.json
	$(BIN)/python -m tools.mutants .venv/mutants.json

# What differs from the answers of another commit: make golden AGAINST=COMMIT (the changelog names the commit of each version)
AGAINST ?= HEAD
golden: $(READY)
	$(BIN)/python -m tools.golden --against $(AGAINST)

bench: $(READY)
	$(BIN)/python benchmarks/rooflines.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/training_search.py
	$(BIN)/python benchmarks/serving_search.py
	$(BIN)/python benchmarks/simulation.py

# The builder of the site, once.
$(SITE): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check zensical==0.1.1
	touch $@

# Refreshes every example's output, the tables, the pictures and the JSON Schemas; writes build/docs, which is docs/ with the reference,
# the changes and the problems of the course; builds the site from it into site/ and the page with the planner inside it into
# site/app/; and checks every link.
docs: $(READY) $(SITE)
	$(BIN)/python -m tools.write_schemas
	$(BIN)/python -m tools.list_targets
	$(BIN)/python -m tools.list_goodput
	$(BIN)/python -m tools.list_constants
	$(BIN)/python -m tools.refresh_docs
	$(BIN)/python -m tools.draw_docs
	$(BIN)/python -m tools.build_docs
	$(BIN)/zensical build --clean
	$(BIN)/python -m tools.finish_site site
	$(BIN)/python -m tools.static_edition.build --out site/app
	$(BIN)/python -m tools.check_site site

# Predicts every measured row anew: the pictures and the table of docs/validation.md.
validation: $(READY)
	$(BIN)/python -m tools.draw_validation
	$(BIN)/python -m tools.list_constants

# Refits the constants of stacks and engines, scores them on runs left out, and writes the tables of the validation pages: about twenty
# minutes of CPU. After a change of stacks.toml or engines.toml `python -m tools.list_constants` writes the constants alone.
refits: $(READY)
	$(BIN)/python -m tools.fit_stacks --most 40 --write
	$(BIN)/python -m tools.fit_engines inference --most 80 --write
	$(BIN)/python -m tools.fit_engines serving --most 50 --write
	$(BIN)/python -m tools.fit_engines serving --halves --write

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/basedpyright && $(BIN)/lint-imports
	$(BIN)/python -m tools.lint_page

format: $(READY)
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# Wheel and sdist: built, looked into, installed on every Python there is, and asked. `python -m tools.check_release --full` also
# runs the README's two commands in a clean clone.
release-check: $(READY)
	$(BIN)/python -m tools.check_release
