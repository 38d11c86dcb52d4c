"""What benchmarks share: a command line, a Kafka, a Spark of this process, and sides that take turns."""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext

from integration.benchmarks.jvm_connector import SETTINGS
from integration.kafka_broker import running_broker
from integration.kafka_handle import KafkaAt, KafkaHandle, Record
from kstream.spark.spark_context import make_spark_context


def parser_of(doc: str | None, **numbers: int) -> argparse.ArgumentParser:
    """Return the parser of a command line: with the docstring of the benchmark, and an option for each number, by its default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bootstrap", help="a broker that runs; default: one is started")


def add_alone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alone", action="store_true", help="only our side: the JVM connector is neither fetched nor measured")


@contextmanager
def running_kafka(bootstrap: str | None = None) -> Generator[tuple[KafkaHandle, Path]]:
    """Yield a Kafka and an empty directory. The Kafka is the one at an address, or a broker that is started and ended here."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name, "work")
        directory.mkdir()
        yield KafkaAt(bootstrap) if bootstrap else stack.enter_context(running_broker(Path(name, "kafka"))), directory


def make_topic(kafka: KafkaHandle, records: Iterable[Record], partitions: int = 1) -> str:
    """Make a topic of these records. Return its name."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions)
    kafka.produce(topic, records)
    return topic


@contextmanager
def running_spark(name: str, settings: Mapping[str, str] | None = None) -> Generator[SparkContext]:
    """Yield a SparkContext that kstream makes: on local[2], and quiet."""
    sc = make_spark_context(SparkConf().setAppName(name).setAll(list({**SETTINGS, **(settings or {})}.items())))
    sc.setLogLevel("ERROR")
    try:
        yield sc
    finally:
        sc.stop()


def seconds_in_turns(sides: Mapping[str, Callable[[], object]], rounds: int, warm_up: int) -> dict[str, list[float]]:
    """Run sides in turns, each second round backwards.

    Args:
        sides: what is timed, by name.
        rounds: how many rounds count.
        warm_up: how many rounds come before, in which workers start and JVMs compile.

    Returns:
        The seconds of each side in each round that counts.
    """
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name in sides if number % 2 else reversed(list(sides)):
            began = time.perf_counter()
            sides[name]()
            if number >= warm_up:
                found[name].append(time.perf_counter() - began)
    return found
