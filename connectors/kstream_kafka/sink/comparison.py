"""What differs when a written partition of a half-written batch is computed again. `difference` is pure.

With changed code a record may have moved to another partition, behind a shuffle, a union or coalesce. Then what is written and what is
still to be written do not fit together. Where each partition has its own input, what is written stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kstream.sinks.receipt import check_hashing
from kstream.worker.process import begin_task
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import Digest, Digests
from kstream_kafka.sink.spool import digests_of

ONE_TO_ONE = "org.apache.spark.OneToOneDependency"
SCANS = ("org.apache.spark.sql.execution.datasources.", "org.apache.spark.rdd.HadoopRDD", "org.apache.spark.rdd.NewHadoopRDD")
"""Begin the classes of RDDs that scan files or a table. Who scans it again may find other files, or divide them otherwise."""


class Recomputed(NamedTuple):
    """A partition that a task has computed and not written, because it is written."""

    partition: int
    digests: Digests


@dataclass(frozen=True)
class Recomputation:
    """Computes written partitions again, to compare them. Pickled into the tasks.

    Attributes:
        hashing: that of the receipts of the batch.
        output: the name of the output.
        time_ms: the batch.
    """

    hashing: int | None
    output: str
    time_ms: int

    def __call__(self, partition: int, records: Iterable[Encoded]) -> Iterator[Recomputed]:
        """Yield the digests of a partition. OutputChangedError if this worker divides keys otherwise."""
        begin_task()
        check_hashing(self.hashing, self.output, self.time_ms)
        yield Recomputed(partition, digests_of(records))


@dataclass(frozen=True, slots=True)
class Difference:
    """How a partition differs from what is written of it.

    Attributes:
        partition: its number.
        words: a clause that names the partition.
        has_moved: whether records may have moved between partitions: there are other keys, or more or fewer records, or other values
            without keys, which do not tell.
    """

    partition: int
    words: str
    has_moved: bool


def difference(partition: int, written: Digests, now: Digests) -> Difference | None:
    """Return how a partition differs from what is written of it; None if it is the same.

    Args:
        partition: its number.
        written: the digests in its receipt.
        now: those of its records now.
    """
    only_values: Difference | None = None
    for topic in sorted(written.keys() | now.keys()):
        then, found = written.get(topic, Digest()), now.get(topic, Digest())
        place = f"partition {partition}, topic {topic}"
        if then.records != found.records:
            return Difference(partition, f"{place}: {then.records} records are written, and there are {found.records} now", has_moved=True)
        if then.keys != found.keys:
            return Difference(partition, f"{place}: its {then.records} records have other keys than those that are written", has_moved=True)
        if then != found and (only_values is None or then.keys == 0):
            words = f"{place}: some values are others than those that are written"
            only_values = Difference(partition, words, has_moved=then.keys == 0)
    return only_values


def is_one_to_one(rdd: Any) -> bool:
    """Return whether each partition is computed from the same partition of each parent, up to the sources. Asks the JVM.

    A shuffle moves records between partitions, a union numbers the partitions of its parents, and coalesce puts partitions together. A
    table has partitions of its own at each scan.
    """
    left, seen = [rdd._jrdd.rdd()], set[int]()
    while left:
        one = left.pop()
        if one.id() in seen:
            continue
        seen.add(one.id())
        if one.getClass().getName().startswith(SCANS):
            return False
        found = one.dependencies()
        for number in range(found.size()):
            dependency = found.apply(number)
            if dependency.getClass().getName() != ONE_TO_ONE:
                return False
            left.append(dependency.rdd())
    return True
