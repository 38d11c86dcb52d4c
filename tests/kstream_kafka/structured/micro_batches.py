"""What Spark does with a query of micro-batches, without Spark."""

from __future__ import annotations

from typing import Any

from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.readers import KafkaStreamReader

from kstream.clock import StopFlag
from kstream.offsets.offset_range import Partition
from kstream.testing import ManualClock
from tests.kstream_kafka.fakes import FakeClient

Logs = dict[Partition, tuple[int, int]]


TWO: Logs = {("t", 0): (0, 10), ("t", 1): (5, 20)}


EARLIEST = {"startingOffsets": "earliest"}


class WaitingClock(ManualClock):
    """A clock that is moved by waits, and does something at each."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.at_wait: Any = lambda number: None

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        self.waits += 1
        self.at_wait(self.waits)
        self.advance(milliseconds)
        return False


class Query:
    """What Spark does with a query: its checkpoint outlives the planner process, which `restart` replaces."""

    def __init__(self, logs: Logs, version: str = "4.2", **given: str) -> None:
        self.client, self.clock, self.version = FakeClient(dict(logs)), WaitingClock(), version
        subscribed = {} if given.keys() & {"subscribePattern", "assign"} else {"subscribe": "t"}
        self.given = {"kafka.bootstrap.servers": "h:1", **subscribed, **given}
        self.offsets: list[Any] = []
        """The offset log."""
        self.committed = 0
        """The number of committed batches."""
        self.read: list[tuple[str, int, int]] = []
        """What the tasks of committed batches have read."""
        self.reader = self.new_reader()

    def new_reader(self) -> KafkaStreamReader:
        options = SourceOptions.parse(self.given).of_stream()
        return KafkaStreamReader(options, ("value",), lambda _: self.client, self.clock)

    def restart(self) -> Query:
        """Start a new planner process on the checkpoint."""
        self.reader = self.new_reader()
        if self.offsets:
            self.reader.partitions(self.offsets[-1], self.offsets[-1])
            if self.committed < len(self.offsets):
                self.run()
        return self

    def start(self) -> Any:
        """Where the next batch begins: at the end of the last committed one."""
        return self.offsets[self.committed - 1] if self.committed else self.reader.initialOffset()

    def construct(self, limit: Any = None) -> bool:
        """Ask for the next batch, and log it if there is something new. Return whether there is."""
        if self.version == "4.2":
            end = self.reader.latestOffset(self.start(), limit or self.reader.getDefaultReadLimit())
        else:  # the question for the beginning comes later
            end = self.reader.latestOffset()
        if self.offsets and end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        return True

    def run(self) -> list[tuple[str, int, int]]:
        """Run the batch that was logged last, and commit it. Return what its tasks read: (topic, partition, offset)."""
        partitions = self.reader.partitions(self.start(), self.offsets[-1])
        ranges = [split.range for partition in partitions for split in partition.splits]
        records = [(r.topic, r.partition, at) for r in ranges for at in range(r.fromOffset, r.untilOffset)]
        self.committed = len(self.offsets)
        self.read += records
        return records

    def begin(self) -> Query:
        """Run the first batch, which is empty, where Spark has one."""
        if self.version == "4.2":
            assert self.trigger() == [] and self.committed == 1
        return self

    def trigger(self, limit: Any = None) -> list[tuple[str, int, int]]:
        return self.run() if self.construct(limit) else []

    def produce(self, partition: Partition, until: int) -> None:
        self.client.logs[partition] = (self.client.logs[partition][0], until)


def recreated(logs: Logs, **given: str) -> Query:
    """A query whose topic is made anew with two records after the first batches."""
    query = Query(TWO, **EARLIEST, **given)
    query.client.ids = {"t": "old"}
    query.trigger()
    query.trigger()
    query.client.ids = {"t": "new"}
    query.client.logs = dict(logs)
    return query
