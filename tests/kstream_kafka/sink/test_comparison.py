"""A written partition that is computed again is compared by what a moved record would change: number of records, and keys."""

from __future__ import annotations

from typing import Any

from kstream_kafka.sink.comparison import ONE_TO_ONE, SCANS, Difference, difference, is_one_to_one
from kstream_kafka.sink.receipt import Digest

WRITTEN = {"out": Digest(2, 10, 100, 1000)}


def test_the_same_records_are_no_difference() -> None:
    assert difference(3, WRITTEN, dict(WRITTEN)) is None
    assert difference(3, {}, {}) is None


def test_another_number_of_records_or_other_keys_may_mean_that_records_have_moved() -> None:
    more = difference(3, WRITTEN, {"out": Digest(3, 10, 100, 1000)})
    assert more == Difference(3, "partition 3, topic out: 2 records are written, and there are 3 now", has_moved=True)
    keys = difference(3, WRITTEN, {"out": Digest(2, 10, 101, 1000)})
    assert keys == Difference(3, "partition 3, topic out: its 2 records have other keys than those that are written", has_moved=True)
    assert (gone := difference(3, WRITTEN, {})) is not None and gone.has_moved
    assert (other := difference(3, WRITTEN, {"other": WRITTEN["out"]})) is not None and other.has_moved


def test_other_values_alone_mean_that_no_record_has_moved() -> None:
    for now in (Digest(2, 10, 100, 1001), Digest(2, 11, 100, 1000)):
        found = difference(3, WRITTEN, {"out": now})
        assert found == Difference(3, "partition 3, topic out: some values are others than those that are written", has_moved=False)


def test_other_values_without_keys_may_mean_that_records_have_moved() -> None:
    written = {"a": Digest(1, 1, 1, 1), "out": Digest(2, 10, 0, 1000)}
    found = difference(3, written, {"a": Digest(1, 1, 1, 2), "out": Digest(2, 10, 0, 1001)})
    assert found == Difference(3, "partition 3, topic out: some values are others than those that are written", has_moved=True)


def test_a_moved_record_of_any_topic_is_found_behind_other_values_of_the_first() -> None:
    found = difference(3, {"a": Digest(1, 1, 1, 1), "b": Digest(1, 1, 1, 1)}, {"a": Digest(1, 1, 1, 2), "b": Digest(1, 1, 2, 1)})
    assert found is not None and found.has_moved and "topic b" in found.words


class Node:
    """Stands for an RDD of the JVM, for its class, and for its dependencies."""

    def __init__(self, number: int, *parents: Node, kind: str = ONE_TO_ONE, name: str = "org.apache.spark.rdd.MapPartitionsRDD") -> None:
        self.number, self.parents, self.kind, self.name, self.asked = number, parents, kind, name, 0

    def getClass(self) -> Any:
        return self

    def getName(self) -> str:
        return self.name

    def id(self) -> int:
        return self.number

    def dependencies(self) -> Any:
        self.asked += 1
        return self

    def size(self) -> int:
        return len(self.parents)

    def apply(self, number: int) -> Any:
        return Dependency(self.parents[number], self.kind)


class Dependency:
    def __init__(self, parent: Node, kind: str) -> None:
        self.parent, self.kind = parent, kind

    def getClass(self) -> Any:
        return self

    def getName(self) -> str:
        return self.kind

    def rdd(self) -> Node:
        return self.parent


class PythonRDD:
    def __init__(self, node: Node) -> None:
        self._jrdd = self
        self.node = node

    def rdd(self) -> Node:
        return self.node


def test_each_step_must_be_one_to_one_and_each_rdd_is_asked_once() -> None:
    source = Node(0)
    narrow = Node(3, Node(1, source))
    assert is_one_to_one(PythonRDD(narrow)) and source.asked == 1
    for kind in ("ShuffleDependency", "RangeDependency", "rdd.CoalescedRDD$$anon$1"):
        assert not is_one_to_one(PythonRDD(Node(5, Node(4, narrow, kind=f"org.apache.spark.{kind}")))), kind


def test_a_table_has_partitions_of_its_own_at_each_scan() -> None:
    for name in ("FileScanRDD", "v2.DataSourceRDD", "jdbc.JDBCRDD"):
        assert not is_one_to_one(PythonRDD(Node(1, Node(0, name=SCANS[0] + name)))), name
    for name in SCANS[1:]:
        assert not is_one_to_one(PythonRDD(Node(1, Node(0, name=name)))), name
