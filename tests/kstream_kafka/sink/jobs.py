"""Jobs: drivers of one checkpoint that write batches to a FakeKafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.sink.audit import AuditEntry, decode_entry
from kstream_kafka.sink.kafka_output import KafkaOutput
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import acceptance_key, encode_acceptance

from kstream.batch_time import Time
from kstream.output import OutputBatch, Writer

from .fake_kafka import FakeKafka

RECEIPTS, AUDIT, TOTALS = "kstream-receipts", "kstream-audit", "totals"


class Partitions:
    """Stands for an RDD of encoded records, which are numbers: its partitions run in this process."""

    def __init__(
        self, *partitions: Sequence[int], level: str = "DETERMINATE", is_shuffled: bool = False, keys: bytes | None = None
    ) -> None:
        self.partitions = partitions
        self.is_shuffled, self.keys = is_shuffled, keys
        self.context = self._jrdd = self
        self.ran: list[int] = []
        self.level = level

    def getNumPartitions(self) -> int:
        return len(self.partitions)

    def rdd(self) -> Any:
        return self

    def outputDeterministicLevel(self) -> Any:
        return self

    def toString(self) -> str:
        return self.level

    def mapPartitionsWithIndex(self, function: Callable[[int, Iterator[Encoded]], Iterator[Any]]) -> Any:
        return function

    def runJob(self, function: Any, _collect: Any, chosen: Sequence[int]) -> list[Any]:
        self.ran += chosen
        return [result for number in chosen for result in function(number, self.records(number))]

    def records(self, number: int) -> Iterator[Encoded]:
        return ((TOTALS, self.keys, b"%d" % n, (), n, None) for n in self.partitions[number])


class Jobs:
    """Drivers of one checkpoint that write to Kafka."""

    def __init__(self, kafka: FakeKafka) -> None:
        self.kafka = kafka
        self.plans: dict[int, str] = {}
        self.nonces: dict[int, str] = {}

    def driver(self, stored: Any = None, nonce: str = "", epoch: int = 0, given_up: Sequence[int] = (), **given: Any) -> KafkaOutput:
        """The output of the next driver. `stored`: of the newest completion. `nonce`, `epoch`: those of another copy of the checkpoint.

        `given_up`: the batches that the checkpoint has set aside.
        """
        output = KafkaOutput("kafka totals", KafkaParams.parse({"bootstrap.servers": "fake:1"}), "kstream", **given)
        epoch = epoch or len(self.nonces) + 1
        own, known = nonce or f"nonce {epoch}", dict(self.plans)
        if not nonce:
            self.nonces[epoch] = own
        nonce_of: Callable[[int], str | None] = lambda e: own if e == epoch else self.nonces.get(e)  # noqa: E731
        gone = frozenset(map(Time, given_up))
        output.restore(Writer("job", epoch, own, nonce_of, lambda time, plan: known.get(time.milliseconds) == plan, gone), stored)
        return output

    def write(
        self, output: KafkaOutput, time_ms: int, rdd: Partitions, is_first_try: bool = True, partitions: Any = ..., inputs: Any = ()
    ) -> Any:
        """Write a batch, and return its outcome."""
        given: Any = rdd
        batch = OutputBatch(Time(time_ms), self.plans.setdefault(time_ms, f"plan of {time_ms}"), is_first_try, dict(inputs))
        missing = output.prepare(batch, given)
        output.run(batch, given, missing if partitions is ... else partitions)
        return output.outcome(Time(time_ms))

    def numbers(self) -> list[int]:
        return [int(value) for value in self.kafka.values(TOTALS)]

    def entries(self) -> list[AuditEntry]:
        """Those of the batches in the audit."""
        topic = self.kafka.topics.get(AUDIT)
        entries = [] if topic is None else [decode_entry("job", "kafka totals", entry.its_value or b"", "") for entry in topic[1][0]]
        return [entry for entry in entries if entry.is_batch]

    def accept(self, time_ms: int) -> None:
        """As `kstream sink accept` does."""
        self.kafka.append(RECEIPTS, 0, acceptance_key("job", "kafka totals"), encode_acceptance(time_ms))
