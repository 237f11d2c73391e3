# Each target sets up its own virtual environment from the versions in constraints.txt.
PYTHON ?= python3
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check

.PHONY: quickstart test test-all lint chaos soak simulate clean

quickstart: .venv-run/ready
	.venv-run/bin/sapiens-batch run jobs/quickstart.yaml

test: .venv/ready
	.venv/bin/pytest

# The slow tests too.
test-all: .venv/ready
	.venv/bin/pytest -m 'slow or not slow'

lint: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python scripts/generate_schemas.py --check

# Every fault at every point, on local disk and on SeaweedFS, as a table; takes a quarter of an hour.
chaos: .venv/ready
	.venv/bin/python -m tests.chaos.matrix local weed

# A million histories of the commit protocol; a failing seed prints its history.
simulate: .venv/ready
	.venv/bin/python -m tests.simulation --count 1000000

# Forty processes of one job killed at random; then one of which everything dies.
soak: .venv/ready
	.venv/bin/python -m tests.chaos.soak 40
	.venv/bin/python -m tests.chaos.havoc

.venv-run/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-run
	.venv-run/bin/python $(PIP_INSTALL) -c constraints.txt -e .
	touch $@

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[dev,s3]'
	touch $@

clean:
	rm -rf .venv .venv-run labels .mypy_cache .ruff_cache .pytest_cache
