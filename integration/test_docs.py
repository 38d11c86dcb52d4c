"""The documentation's code runs: the pages of docs/, each page one program, against a real broker. (README.md: test_ten_minutes.py.)"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from integration.kafka_broker import KafkaBroker
from integration.s3_server import S3Process

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_CODE = (
    "choosing.md",
    "cli.md",
    "compatibility.md",
    "concepts.md",
    "contributing.md",
    "glossary.md",
    "kubernetes.md",
    "messages.md",
    "night.md",
    "schema-registry.md",
    "settings.md",
    "troubleshooting.md",
)
"""Pages whose commands need a job of their reader: each command is only parsed, by tests/test_commands_in_docs.py."""
MARKS = {"outputs.md": pytest.mark.postgres}
TYPED = ("quickstart.md",)
"""Pages whose commands are typed in their order, by test_ten_minutes.py."""
PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md") if path.name not in WITHOUT_CODE)

COMMANDS = tuple(f"kstream {name}" for name in ("checkpoint", "doctor", "history", "lag", "ledger", "offsets", "status", "structured"))
"""What a page shows that can be run as it stands: a job to run is none of them."""

FAILS_ONCE = '''
from kstream.sinks.database import OnceOutput
from kstream_kafka.sink.kafka_output import KafkaOutput

tries = []


def run_and_fail_once(run):
    """Return a method that writes a batch exactly once, and fails after its first try."""

    def runs(self, batch, rdd, partitions):
        run(self, batch, rdd, partitions)
        tries.append((self.name, batch.time.milliseconds))
        if tries.count(tries[-1]) == 1:
            raise ConnectionError("the connection was lost after the commit")

    return runs


for output in (OnceOutput, KafkaOutput):
    output.run = run_and_fail_once(output.run)


def fails_once(write):
    """Return a function for `foreachRDD` or `foreachBatch` that writes, and fails after its first try of a batch."""

    def output(first, second):
        write(first, second)
        batch_id = second if isinstance(second, int) else first.milliseconds
        tries.append((write.__name__, batch_id))
        if tries.count((write.__name__, batch_id)) == 1:
            raise ConnectionError("the connection was lost after the commit")

    return output


'''
WRITTEN_TWICE = """
assert len(tries) == 2 * len(set(tries)) and {name for name, _ in tries} == OUTPUTS, tries
"""

QUERY = "/mnt/queries/orders"
"""The checkpoint of a query of Structured Streaming that a page speaks of."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run_command(line: str, directory: Path, kafka: KafkaBroker, stores: Mapping[str, str] = MappingProxyType({})) -> None:
    """A command as the text has it, with this broker, this directory and these stores."""
    words = here(line.partition("#")[0], {"/var/lib/orders": str(directory), "localhost:9092": kafka.bootstrap, **stores}).split()
    done = subprocess.run([sys.executable, "-m", "kstream.cli", *words[1:]], capture_output=True, text=True, timeout=180, check=False)
    of_a_query = words[1] == "status" and words[2].endswith("/query")
    expected = {"diff": (0, 1), "status": (0,) if of_a_query else (2,), "doctor": (0, 1)}.get(
        words[2] if words[1] == "checkpoint" else words[1], (0,)
    )  # 1: differ; 2: ended, which a query does not say; 1: a full disk
    assert done.returncode in expected and done.stdout and not done.stderr, f"{line}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def orders(kafka: KafkaBroker) -> KafkaBroker:
    """A broker with topics as the pages have them."""
    kafka.create_topic("orders", 2)
    kafka.create_topic("orders.dlq", 1)
    kafka.create_topic("totals", 2)
    kafka.create_topic("items", 2)
    kafka.produce("orders", [(f"order-{i}", f"item {i % 7}", i % 2) for i in range(40)])
    return kafka


def here(text: str, places: dict[str, str]) -> str:
    for given, ours in places.items():
        text = text.replace(given, ours)
    return text


def program(page: Path, directory: Path, kafka: KafkaBroker) -> Path:
    """The page's Python, with this broker and this directory instead of those of the text."""
    text = here("\n".join(blocks(page, "python")), {"localhost:9092": kafka.bootstrap, "/var/lib/orders": str(directory)})
    assert text.strip(), f"{page} has no code"
    if page.name == "outputs.md":
        text = written_twice(text)
    path = directory / "page.py"
    path.write_text(text)
    return path


def written_twice(text: str) -> str:
    """The program of the page about outputs, in which each write fails once after its commit, so that a retry writes again."""
    output = re.compile(r"^(\w+\.foreach(?:RDD|Batch))\((to_\w+)\)$", re.MULTILINE)
    outputs = {name for _, name in output.findall(text)}
    assert len(outputs) == text.count("\ndef to_") == 3
    outputs |= set(re.findall(r'name="(\w+)"\)+$', text, re.MULTILINE))
    assert len(outputs) == 7
    return FAILS_ONCE + output.sub(r"\1(fails_once(\2))", text) + f"\nOUTPUTS = {outputs!r}" + WRITTEN_TWICE


@pytest.fixture
def stores(page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The stores that a page speaks of, and where they are here."""
    text, places = (ROOT / page).read_text(), {}
    if "s3://orders-etl" in text:
        s3: S3Process = request.getfixturevalue("s3")
        places["s3://orders-etl"] = s3.url(uuid.uuid4().hex)
        for key, value in s3.environment().items():
            monkeypatch.setenv(key, value)
    if "postgresql://localhost/orders" in text:
        places["postgresql://localhost/orders"] = request.getfixturevalue("postgres").url
    if "localhost:2181" in text:
        places["localhost:2181"] = request.getfixturevalue("zookeeper").hosts
    if QUERY in text:
        places[QUERY] = str(ROOT / "tests" / "cli" / "structured_streaming" / "v1")
    if "hdfs://namenode:8020" in text:
        places["hdfs://namenode:8020"] = request.getfixturevalue("hdfs").url(uuid.uuid4().hex)
    return places


@pytest.mark.timeout(600)  # the first page on HDFS starts it
@pytest.mark.parametrize("page", [pytest.param(page, marks=MARKS.get(page.name, ())) for page in PAGES], ids=str)
def test_every_block_of_a_page_runs(page: Path, orders: KafkaBroker, tmp_path: Path, stores: dict[str, str]) -> None:
    script = program(ROOT / page, tmp_path, orders)
    script.write_text(here(script.read_text(), stores))
    environment = {**os.environ, "KAFKA_PASSWORD": "of-the-page"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    shown = [line for block in blocks(ROOT / page, "sh") for line in block.splitlines() if line.startswith(COMMANDS)]
    for line in shown if page.name not in TYPED else []:
        run_command(line, tmp_path, orders, stores)
