"""kstream as a `.zip` of spark-submit on a cluster whose executors have confluent-kafka, and nothing else of what kstream needs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from integration.clean_venv import build_wheel, make_bare_venv
from integration.exactness.verdict import read_lines
from integration.kafka_broker import KafkaBroker
from integration.record_errors import letters_in
from integration.spark_cluster import running_cluster
from integration.submitted import Submitted
from kstream.checkpoint import read_log
from kstream.storage import open_store

PARTITIONS, RECORDS = 2, 120
ON_EXECUTORS = ("confluent-kafka", "typing-extensions")
"""What docs/deployment.md names, and what it needs itself before Python 3.11."""
JOB = '''
import json, os, sys, threading, time

import kstream
from kstream_kafka import HasOffsetRanges, KafkaUtils
from pyspark import SparkConf

directory, bootstrap, topic, letters = sys.argv[1:]


def note(name, **record):
    with open(os.path.join(directory, name), "a") as file:
        file.write(json.dumps(record) + "\\n")


class Numbers(kstream.Receiver):
    """Counts, in blocks of ten that have two replicas, and notes how far it was acknowledged."""

    def onStart(self):
        threading.Thread(target=self.run, daemon=True).start()

    def onStop(self):
        pass

    def run(self):
        until = 0
        while not self.isStopped():
            self.storeAll(range(until, until + 10))
            until += 10
            note("acknowledged", until=until, kstream=kstream.__file__, path=os.environ["PYTHONPATH"])
            time.sleep(0.5)


def setup():
    ssc = kstream.StreamingContext(SparkConf().setAppName("of a zip"), 2)
    stream = KafkaUtils.createDirectStream(
        ssc, [topic], {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"},
        keyDecoder=bytes.decode, valueDecoder=int, onRecordError="dead-letter", deadLetterTopic=letters,
    )

    def read(at, rdd):
        ranges = [[r.partition, r.fromOffset, r.untilOffset] for r in rdd.offsetRanges()]
        note("read", ranges=ranges, values=rdd.values().collect())

    stream.foreachRDD(read)
    counts = stream.mapValues(lambda value: 1).updateStateByKey(lambda new, count: (count or 0) + sum(new), numPartitions=2)
    counts.checkpoint(2)
    counts.foreachRDD(lambda at, rdd: note("counts", **dict(rdd.collect())))
    ssc.receiverStream(Numbers()).foreachRDD(lambda at, rdd: note("received", numbers=rdd.collect()))
    return ssc


ssc = kstream.StreamingContext.getOrCreate(os.path.join(directory, "checkpoint"), setup)
ssc.start()
ssc.awaitTermination()
'''
CONF = {
    "spark.executor.memory": "512m",
    "spark.streaming.stopGracefullyOnShutdown": "true",
    "spark.streaming.gracefulStopTimeout": "200s",
}


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kstream as `make dist` makes it for `--py-files`."""
    folder = tmp_path_factory.mktemp("dist")
    return Path(shutil.copyfile(build_wheel(folder), folder / "kstream.zip"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare_venv(tmp_path_factory.mktemp("executors") / "venv", *ON_EXECUTORS) / "bin" / "python"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The master of two workers without PYTHONPATH, and the folder with the logs of executors."""
    folder = tmp_path_factory.mktemp("spark") / "cluster"
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PYTHONPATH", raising=False)
        with running_cluster(folder, workers=2, cores=2, memory="600m") as spark:
            yield spark.url, folder / "work"


def produce(kafka: KafkaBroker, topic: str, numbers: range) -> None:
    """Every tenth record has a value that is no number."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in numbers:
        producer.produce(topic, b"poison" if n % 10 == 3 else b"%d" % n, b"k%d" % (n % 7), partition=n % PARTITIONS)
    assert producer.flush(30) == 0


@pytest.mark.timeout(400)
def test_every_record_is_exact_on_a_cluster_that_has_kstream_from_the_zip_only(
    zipped: Path, python: Path, cluster: tuple[str, Path], kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A direct stream with dead letters and state, and a receiver with two replicas, until SIGTERM stops them gracefully."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    name, dead = topic(PARTITIONS), topic()
    produce(kafka, name, range(RECORDS))
    job = tmp_path / "job.py"
    job.write_text(JOB)
    arguments = (tmp_path, kafka.bootstrap, name, dead)
    environment = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    with Submitted(
        tmp_path, job, *arguments, master=cluster[0], options=("--py-files", zipped), environment=environment, **CONF
    ) as run:  # fmt: skip
        run.wait_for("reading the first half", lambda: len(read_values(tmp_path)) >= RECORDS * 9 // 10)
        run.wait_for("receiving", lambda: received(tmp_path))
        produce(kafka, name, range(RECORDS, 2 * RECORDS))
        run.terminate()
    said = run.said()
    until = read_until(tmp_path)
    read = [n for n in range(2 * RECORDS) if n // PARTITIONS < until[n % PARTITIONS]]
    good = [n for n in read if n % 10 != 3]
    assert sorted(read_values(tmp_path)) == good and len(read) >= RECORDS, said[-3000:]
    assert read_lines(tmp_path / "counts")[-1] == Counter(f"k{n % 7}" for n in good)
    assert places_of_letters(kafka, dead) == {(n % PARTITIONS, n // PARTITIONS) for n in read if n % 10 == 3}

    numbers, acknowledged = received(tmp_path), read_lines(tmp_path / "acknowledged")
    assert numbers == list(range(len(numbers))) and len(numbers) >= acknowledged[-1]["until"]
    assert all("kstream.zip" in line["kstream"] and "kstream" not in line["path"] for line in acknowledged)
    of_executors = [path.read_text(errors="replace") for path in cluster[1].glob("app-*/*/stderr")]
    assert len(of_executors) == 2 and "replicas" not in "".join([said, *of_executors]), "no block was on one executor only"

    checkpoint = tmp_path / "checkpoint"
    assert read_log(open_store(str(checkpoint))).pending == [] and any((checkpoint / "state").iterdir())


def read_values(directory: Path) -> list[int]:
    return [value for line in read_lines(directory / "read") for value in line["values"]]


def read_until(directory: Path) -> dict[int, int]:
    """Where each partition was read to; the ranges of its batches have neither gaps nor overlaps."""
    until = dict.fromkeys(range(PARTITIONS), 0)
    for line in read_lines(directory / "read"):
        for partition, first, end in line["ranges"]:
            assert first == until[partition]
            until[partition] = end
    return until


def received(directory: Path) -> list[int]:
    return sorted(number for line in read_lines(directory / "received") for number in line["numbers"])


def places_of_letters(kafka: KafkaBroker, topic: str) -> set[tuple[int, int]]:
    """(partition, offset) of each record with a letter: an attempt at a batch that is repeated writes it again."""

    def header(letter: Any, name: str) -> int:
        return json.loads(dict(letter.headers())[f"__connect.errors.{name}"])

    return {(header(letter, "partition"), header(letter, "offset")) for letter in letters_in(kafka, topic)}
