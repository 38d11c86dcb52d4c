"""Kills drivers and executors of a query from Kafka to Kafka, and judges what a reader of committed records finds in the target topic.

Three sinks: `format("kstream")`, the same at least once, and Spark's own. Of the first one each record must be there once, and no reader
may see a part of a batch. The other two must show what the campaign can tell: records that are there twice, and parts of batches.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.sink.query_receipt import QueryReceipt, decode_query_receipt
from kstream_kafka.sink.receipt import parsed_key
from kstream_kafka.sink.receipts import where
from kstream_kafka.sink.receipts_topic import receipts_topic
from kstream_kafka.sink.spool import digests_of

from integration import commands
from integration.benchmarks.jvm_parts import connector_parts
from integration.exactness.verdict import Verdict
from integration.kafka_broker import KafkaBroker
from integration.kafka_tools import committed_values
from integration.masters import Master
from integration.structured_kills import sink_job
from integration.structured_kills.campaign import EXECUTOR, PARTITIONS, Driver, StructuredCampaign, StructuredReport
from integration.structured_kills.job import offsets_of

SINKS = (KSTREAM, AT_LEAST_ONCE, SPARK) = ("kstream", "at-least-once", "spark")
TARGET_PARTITIONS = 3
MIN_PARTITIONS = (1, 5, 8, 13)
"""Each driver has one of these as `minPartitions` of its source: a batch that runs again has other tasks than before."""
BATCH_S, WRITTEN_S = 1.5, 0.3
"""How long a batch takes, and how long it is from its first record in Kafka to Spark's log of commits, about. A kill comes within."""
MARKERS_S = 5.0
"""Seconds in which brokers have written the markers of a transaction to all partitions."""
READ_S = 60.0


class Copied(NamedTuple):
    """A record of the target topic."""

    value: str
    partition: int
    offset: int


@dataclass
class SinkReport(StructuredReport):
    """What came of the campaign of a sink.

    Attributes:
        sink: one of SINKS.
        in_a_batch: the kills of drivers in a batch that had no receipt.
        behind_the_receipt: those behind the transaction of a batch, before Spark's log of commits.
        parts: the batches of which readers saw only a part after a kill.
        repeats: how many records are there a second time.
    """

    sink: str = KSTREAM
    in_a_batch: int = 0
    behind_the_receipt: int = 0
    parts: int = 0
    repeats: int = 0

    def lines_of(self) -> list[str]:
        killed, *_, verdict = super().lines_of()
        v = self.verdict
        return [
            f"sink: {self.sink}",
            killed,
            f"batches: {v.batches}, records: {v.records}; kills of drivers in an open batch: {self.in_a_batch}, behind its receipt: "
            f"{self.behind_the_receipt}",
            f"there a second time: {self.repeats}; batches of which readers saw a part: {self.parts}",
            *(f"BREACH: {words}" for words in v.breaches),
            verdict if self.sink == KSTREAM else f"verdict: {'no record is missing' if not v.breaches else 'breaches'}",
        ]


class SinkCampaign(StructuredCampaign):
    """One query from Kafka to Kafka, one checkpoint, many drivers. A kill waits until a batch was committed since the last one."""

    def __init__(
        self,
        broker: KafkaBroker,
        topic: str,
        target: str,
        master: Master,
        directory: Path,
        *,
        sink: str = KSTREAM,
        seed: int = 1,
        rate: int = 400,
        options: Mapping[str, str] | None = None,
        asks_console: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        """
        Args:
            broker: has both topics.
            topic: the topic that is read, with PARTITIONS partitions; empty.
            target: the topic that is written, with TARGET_PARTITIONS partitions; empty.
            master: where the query runs. Spark's own sink runs in one process.
            directory: for the checkpoint and all that the drivers note; it is made.
            sink: one of SINKS.
            seed: of kinds, moments, victims and layouts.
            rate: records a second.
            options: of the source, besides the address and the topic.
            asks_console: whether kafka-console-consumer reads the target topic, too.
            say: told of each kill.
        """
        super().__init__(broker, topic, master, directory, seed=seed, rate=rate, options=options, say=say)
        self._target, self._sink, self._asks_console = target, sink, asks_console
        self._committed_before, self._parts = 0, set[int]()
        self._in_a_batch = self._behind = 0

    def run(self, kills: Mapping[str, int]) -> SinkReport:
        """As `StructuredCampaign.run`."""
        done = super().run(kills)
        copied = self._copied()
        repeats = len(copied) - len({record.value for record in copied})
        return SinkReport(
            done.verdict, done.kills, done.drivers, self._sink, self._in_a_batch, self._behind, len(self._parts), repeats
        )  # fmt: skip

    # -- the driver

    def _command(self) -> list[str]:
        if self._sink == SPARK:
            return [str(connector_parts()[0]), sink_job.__file__]
        return [sys.executable, "-m", "integration.structured_kills.sink_job"]

    def _given(self) -> dict[str, Any]:
        is_spark, given = self._sink == SPARK, super()._given()
        own = {} if is_spark else {"prefix": self._target}
        if self._sink == AT_LEAST_ONCE:
            own["delivery"] = "at-least-once"
        jars = {"spark.jars": ",".join(map(str, connector_parts()[1]))} if is_spark else {}
        return {
            **given,
            "target": self._target,
            "source": "kafka" if is_spark else "kstream",
            "sink": "kafka" if is_spark else "kstream",
            "options": {"minPartitions": str(self._random.choice(MIN_PARTITIONS)), **given["options"]},
            "sink_options": own,
            "settings": {**given["settings"], **jars},
        }

    # -- moments

    def _moment(self, kind: str, driver: Driver) -> str:
        """Returns at a random moment, once a batch was committed since the last kill: of a batch, or of its writing."""
        self._wait(driver, lambda: self._last("commits") > self._committed_before, "commit a batch")
        is_written = self._random.random() < 0.5
        if is_written:
            before = self._num_written() + TARGET_PARTITIONS  # the markers of the last batch may still come
            self._wait(driver, lambda: self._num_written() > before, "write a batch")
        time.sleep(self._random.uniform(0, WRITTEN_S if is_written else BATCH_S))
        self._committed_before = self._last("commits")
        return f"after batch {self._committed_before}{', while the next one is written' if is_written else ''}"

    def _num_written(self) -> int:
        """How many records are in the target topic, committed or not."""
        return sum(self._broker.log_range(self._target, partition)[1] for partition in range(TARGET_PARTITIONS))

    def _look_at_what_is_left(self) -> None:
        """Note the batches of which a reader sees a part while no driver lives. What is part of a transaction that has just ended comes."""
        begun, committed = self._last("offsets"), self._last("commits")
        receipts = self._receipts() if self._sink == KSTREAM else {}
        self._in_a_batch += begun > committed and begun not in receipts
        self._behind += begun > committed and begun in receipts
        until = time.monotonic() + MARKERS_S
        while (parts := self._in_part()) and time.monotonic() < until:
            time.sleep(0.2)
        self._parts |= parts

    def _in_part(self) -> set[int]:
        """The batches of which a part is in the target topic."""
        seen = Counter(batch for batch in self._batches(self._copied(), self._ranges()) if batch is not None)
        sizes = {batch: _count(ranges) for batch, ranges in self._ranges().items()}
        return {batch for batch, count in seen.items() if count < sizes[batch]}

    # -- what the drivers have left

    def _last(self, log: str) -> int:
        """The newest batch in a log of Spark's checkpoint; -1 without one."""
        return max((int(path.name) for path in (self._directory / "checkpoint" / log).glob("[0-9]*")), default=-1)

    def _tried(self) -> int:
        return self._last("offsets") + 1

    def _reached(self) -> dict[int, int]:
        return {partition: end for (_, partition), end in offsets_of(self._directory / "checkpoint", self._last("commits")).items()}

    def _ranges(self) -> dict[int, dict[int, range]]:
        """Batch → partition of the source → its offsets, as Spark's checkpoint tells them."""
        found, before = dict[int, dict[int, range]](), dict[int, int]()
        for batch in range(self._last("offsets") + 1):
            ends = {partition: end for (_, partition), end in offsets_of(self._directory / "checkpoint", batch).items()}
            found[batch] = {partition: range(before.get(partition, 0), end) for partition, end in ends.items()}
            before = ends
        return found

    def _batches(self, copied: Iterable[Copied], ranges: Mapping[int, Mapping[int, range]]) -> list[int | None]:
        """The batch of each record; None for a record of none."""
        batch_of = {f"{p}:{at}": batch for batch, of_batch in ranges.items() for p, offsets in of_batch.items() for at in offsets}
        return [batch_of.get(record.value) for record in copied]

    def _copied(self) -> list[Copied]:
        """The committed records of the target topic, in the order of each partition."""
        return [Copied(m.value().decode(), m.partition(), m.offset()) for m in self._read(self._target, TARGET_PARTITIONS)]

    def _receipts(self) -> dict[int, list[QueryReceipt]]:
        """The receipts of each batch."""
        found: dict[int, list[QueryReceipt]] = {}
        name = receipts_topic(self._target)
        for message in self._read(name, len(self._broker.partitions(name))):
            match parsed_key(message.key()):
                case ["query", str(query)]:
                    receipt = decode_query_receipt(query, message.value(), where(message))
                    found.setdefault(receipt.batch, []).append(receipt)
                case _:
                    continue
        return found

    def _read(self, topic: str, partitions: int) -> list[Any]:
        if partitions == 0:
            return []
        reader = TopicReader({"bootstrap.servers": self._broker.bootstrap, "group.id": "judge"})
        try:
            return reader.read(topic, dict.fromkeys(range(partitions), 0), READ_S, waits=False).messages
        finally:
            reader.close()

    # -- the verdict

    def _judge(self, ends: dict[int, int]) -> Verdict:
        copied, ranges = self._copied(), self._ranges()
        counts, wanted = Counter(record.value for record in copied), {f"{p}:{at}" for p, end in ends.items() for at in range(end)}
        verdict = Verdict(batches=sum(bool(_count(of_batch)) for of_batch in ranges.values()), records=len(copied))
        _say(verdict, len(wanted - counts.keys()), "records are missing")
        _say(verdict, len(counts.keys() - wanted), "records are there that nobody has sent")
        if self._asks_console and Counter(committed_values(self._broker.bootstrap, self._target)) != counts:
            verdict.breaches.append("kafka-console-consumer prints other records")
        repeats = counts.total() - len(counts)
        if self._sink != KSTREAM:
            if not repeats:
                verdict.breaches.append("nothing is there twice: the campaign cannot tell a sink that writes twice")
            return verdict
        _say(verdict, repeats, "records are there a second time")
        _say(verdict, len(self._parts), "batches were seen in part")
        verdict.breaches += self._order_breaches(copied, ranges) + self._receipt_breaches(ranges) + self._audit_breaches()
        return verdict

    def _audit_breaches(self) -> list[str]:
        """`kstream audit` must prove that each offset is in one batch, and each batch in the target topic once."""
        code, said, error = commands.run("audit", "--bootstrap", self._broker.bootstrap, "--prefix", self._target, "--json")
        if not said:
            return [f"kstream audit ended with {code}", *error.splitlines()]
        report = json.loads(said)
        if report["verdict"] == "proved" and sum(fact.startswith("input ") for fact in report["facts"]) == PARTITIONS:
            return []
        return [f"kstream audit says {report['verdict']}", *report["facts"], *(finding["words"] for finding in report["findings"])]

    def _order_breaches(self, copied: list[Copied], ranges: Mapping[int, Mapping[int, range]]) -> list[str]:
        """In each partition of the target the batches follow each other, and none begins again."""
        newest, breaches = dict[int, int](), list[str]()
        for record, batch in zip(copied, self._batches(copied, ranges), strict=True):
            if batch is None or batch < newest.get(record.partition, -1):
                breaches.append(f"{record} of batch {batch} is behind batch {newest.get(record.partition)}")
            else:
                newest[record.partition] = batch
        return breaches[:10]

    def _receipt_breaches(self, ranges: Mapping[int, Mapping[int, range]]) -> list[str]:
        """Each batch with records has one receipt, of these records; no other batch has one."""
        receipts, breaches = self._receipts(), list[str]()
        for batch, of_batch in ranges.items():
            values = [f"{p}:{at}".encode() for p, offsets in of_batch.items() for at in offsets]
            wanted = [digests_of((self._target, None, value, (), None, None) for value in values)] if values else []
            if (found := [receipt.digests for receipt in receipts.pop(batch, [])]) != wanted:
                breaches.append(f"batch {batch} has {len(values)} records, and its receipts say {found}")
        return breaches + [f"batch {batch} has a receipt, and Spark knows no such batch" for batch in receipts]


def _count(ranges: Mapping[int, range]) -> int:
    return sum(map(len, ranges.values()))


def _say(verdict: Verdict, count: int, words: str) -> None:
    """Note a breach if there is one."""
    if count:
        verdict.breaches.append(f"{count} {words}")


def check_kills(sink: str, kills: Mapping[str, int], master: Master) -> None:
    """ValueError for kills that a sink cannot have."""
    if sink == SPARK and (master.cluster is not None or kills.get(EXECUTOR)):
        raise ValueError("Spark's own sink runs on another Spark, in one process: --cluster local, without executors")


def make_topics(broker: KafkaBroker, topic: str, target: str) -> None:
    broker.create_topic(topic, PARTITIONS)
    broker.create_topic(target, TARGET_PARTITIONS)
