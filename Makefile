# make demo   learn FetchPick from 27 demonstrations with three methods; writes demo/index.html
# make test   run the tests
# Both create a virtual environment first, with the exact versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# make external      create .venv-external for Meta-World and OGBench, which need MuJoCo 3.3.0
# make test-lerobot  test the plug-in for LeRobot in .venv-lerobot (Python 3.12, gigabytes)
EXTERNAL ?= .venv-external
LEROBOT ?= .venv-lerobot
PYTHON312 ?= python3.12
PLUGIN := plugins/lerobot_policy_diffclone
VIDEOS := $(patsubst %,build/videos/%.webp,maze fetch-pick hand-rotate cheetah walker ant-reach car-racing spiral)

.PHONY: demo test test-slow test-lerobot test-external external fuzz check format bench docs site clean

demo: $(VENV)/.demo
	$(BIN)/diffclone demo --out demo

test: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow

fuzz: $(VENV)/.test
	$(BIN)/python tests/faults/crash_points.py
	$(BIN)/python tests/faults/mutants.py --count 10000

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m scripts.dependencies

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: $(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "diffclone needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 demo"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "this Python cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv"; exit 2; }
	@echo "setting up $(VENV) (a minute or two, once)"
	$(PYTHON) -m venv $(VENV)

external: $(EXTERNAL)/.external
	$(EXTERNAL)/bin/diffclone tasks

test-external: $(EXTERNAL)/.external
	OMP_NUM_THREADS=1 $(EXTERNAL)/bin/python -m pytest tests/test_external.py

$(EXTERNAL)/.external: pyproject.toml constraints-external.txt
	$(PYTHON) -m venv $(EXTERNAL)
	$(EXTERNAL)/bin/pip install --quiet --disable-pip-version-check -c constraints-external.txt \
	  -e '.[external,render,report]' pytest jaxtyping beartype
	@touch $@

test-lerobot: $(LEROBOT)/.lerobot
	cd $(PLUGIN) && OMP_NUM_THREADS=1 $(abspath $(LEROBOT))/bin/python -m pytest

$(LEROBOT)/.lerobot: pyproject.toml $(PLUGIN)/pyproject.toml $(PLUGIN)/constraints.txt
	test -x $(LEROBOT)/bin/pip || $(PYTHON312) -m venv $(LEROBOT)
	$(LEROBOT)/bin/pip install --quiet --disable-pip-version-check -c $(PLUGIN)/constraints.txt -e . -e '$(PLUGIN)[test]'
	@touch $@

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks.speed

docs: $(VENV)/.test
	$(BIN)/python -m docs.make

site: $(VENV)/.dev $(VIDEOS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	rm -rf build/site/report
	$(BIN)/diffclone report --out build/site/report --videos build/videos --records $(addprefix docs/records/, \
	  reproduction.jsonl.gz paper_recipe.jsonl.gz settings.jsonl study.jsonl.gz small_study.jsonl.gz small_schedule.jsonl.gz)

# Episodes of the bundled policies, for the report.
$(VIDEOS): build/videos/%.webp: | $(VENV)/.dev
	$(BIN)/diffclone render $* --policy pretrained --steps 200 --every 3 --width 320 --out $@

clean:
	rm -rf $(VENV) $(EXTERNAL) $(LEROBOT) build dist .pytest_cache .ruff_cache
