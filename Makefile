# One door per chore. `make help` lists them.
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Most of what the integration suite does is waiting, for brokers that come back and clients that give up: two files at a time,
# in their own order: xdist would begin with the files of many tests, and end waiting for those of few, which are the longest.
BESIDE := -n 2 --dist loadfile --no-loadscope-reorder
# The fast suite computes: one process a core, the files of most tests first.
FAST := -n 2 --dist loadfile
export SPARK_LOCAL_IP ?= 127.0.0.1

.DEFAULT_GOAL := help
.PHONY: help install demo compose-demo test test-fast test-integration matrix check format docs dist jars bench chaos soak pictures clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

install: $(STAMP) ## build .venv with everything pinned by requirements.lock

$(STAMP): requirements.lock pyproject.toml scripts/install.sh
	@bash scripts/install.sh $(VENV)
	@touch $@

demo: install ## an embedded broker, a stream of orders, a driver that is killed, and the proof that nothing was lost
	@$(VENV)/bin/kstream demo

compose-demo: ## the cluster of docker-compose.yml: a worker and the driver are killed, and each order is counted once; needs Docker only
	@bash scripts/compose_demo.sh

test: install ## the fast suite, then the integration suite against a real Kafka broker
	@bash scripts/system-packages .cache/system
	@$(PY) -m pytest tests $(FAST)
	@$(PY) -m pytest integration $(BESIDE)

test-fast: install ## no broker, no sleep
	@$(PY) -m pytest tests $(FAST)

test-integration: install ## real things; the broker's jars are fetched once into .cache/
	@bash scripts/system-packages .cache/system
	@$(PY) -m pytest integration $(BESIDE)

matrix: install ## real jobs on each pyspark and each Python (by uv), from the wheel and the sdist; writes the table of docs/compatibility.md
	@$(PY) -m integration.matrix

check: install ## ruff, pyright, import-linter
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/pyright
	@PYTHONPATH=.:connectors $(VENV)/bin/lint-imports

format: install ## let ruff fix and format
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

# The variable silences the theme's notice about MkDocs 2, which comes with each build.
docs: install ## the pages of docs/ and the API as a site in build/site, which needs no network
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "to read it: $(PY) -m http.server --bind 127.0.0.1 --directory build/site"

dist: install ## the sdist, the wheel that is built from it, and the same wheel as .zip for --py-files
	@rm -rf dist
	@$(PY) -m build --no-isolation --outdir dist . > /dev/null
	@for wheel in dist/*.whl; do cp "$$wheel" "$${wheel%.whl}.zip"; done
	@ls -l dist

jars: install ## fetch the real broker's jars into .cache/ now (the integration suite does it when it needs them)
	@$(PY) -m integration.kafka_jars

bench: install ## the ratios of integration/benchmarks, each side by side in one run
	@$(PY) -m integration.benchmarks

chaos: install ## the long campaigns: drivers, executors, workers and brokers killed under every kind of job, requests held or lost, bugs planted, and the rows of both Kafka sources compared; each must be exact
	@$(PY) -m integration.exactness --kills 36
	@$(PY) -m integration.exactness --kills 36 --refusals 2
	@$(PY) -m integration.exactness --kills 36 --refusals 2 --conf spark.streaming.kstream.failedBatch=hold --conf spark.streaming.kstream.batch.retries=5
	@$(PY) -m integration.exactness --kills 36 --sink sqlite
	@$(PY) -m integration.exactness --kills 12 --sink postgresql
	@$(PY) -m integration.exactness --kills 36 --sink kafka
	@$(PY) -m integration.exactness --kills 6 --sink kafka --partitions 4 --reduced
	@$(PY) -m integration.exactness --kills 6 --sink kafka --partitions 8 --changes values
	@$(PY) -m integration.exactness --kills 6 --sink kafka --partitions 4 --reduced --changes values
	@$(PY) -m integration.exactness --kills 6 --sink kafka --partitions 4 --reduced --changes keys
	@$(PY) -m integration.exactness --kills 6 --sink kafka --partitions 4 --grow-to 8
	@$(PY) -m pytest -q integration/cloud_stores.py
	@$(PY) -m integration.exactness --kills 6 --checkpoint azure
	@$(PY) -m integration.sink_faults
	@$(PY) -m integration.sink_planted
	@$(PY) -m integration.chaos.coordinator
	@$(PY) -m integration.chaos --minutes 3 --driver-kills 10
	@$(PY) -m integration.chaos --minutes 3 --driver-kills 10 --sink kafka --rate 1000
	@$(PY) -m integration.received --kills 20
	@$(PY) -m integration.clustered
	@$(PY) -m integration.structured_kills
	@$(PY) -m integration.structured_kills --sink kstream
	@$(PY) -m integration.structured_kills --sink at-least-once --kills driver=4,jvm=2,executor=2
	@$(PY) -m integration.structured_kills --sink spark --cluster local --kills driver=4,jvm=2
	@$(PY) -m integration.structured_differential

soak: install ## two nights of one kstream run: database, broker and store away for minutes, driver and JVM killed, then ZooKeeper and broker under a receiver; must be exact. Then ten minutes of overload for each input, a downtime of five minutes, a first start on ten million records, and 86,400 batches that must leave nothing behind
	@$(PY) -m integration.night
	@for input in direct socket kafka; do $(PY) -m integration.overload $$input --bars --seconds 600 > /dev/null || exit 1; done
	@for start in downtime backlog; do $(PY) -m integration.overload $$start --bars --seconds 300 > /dev/null || exit 1; done
	@$(PY) -m integration.overload backlog --bars --seconds 250 --capacity 40000 --first-batch 100000 > /dev/null
	@$(PY) -m integration.leaks --batches 86400 --bars > /dev/null

pictures: install ## the pictures of docs/: the drawn ones, and those of the page in a Chromium
	@bash scripts/system-packages .cache/system
	@$(PY) scripts/draw_pictures.py
	@$(PY) -m integration.pictures

clean: ## everything that was built or fetched
	@rm -rf $(VENV) .cache dist build .pytest_cache .ruff_cache .import_linter_cache
