"""A failing task names the record and the operation, and its error becomes the user's exception. With PySpark's real workers."""

from __future__ import annotations

import base64
import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext, StorageLevel

from kstream.batch_time import Time
from kstream.dstream.arguments import with_time_and_key
from kstream.dstream.state_dstreams import updated
from kstream.errors import FencedError, is_of_a_task, where_of
from kstream.rdd.map_with_state import MapWithState
from kstream.spark.spark_context import active_spark_context
from kstream.spark.state_rdds import SparkStateRDDs
from kstream.spark.task_errors import in_task, key_of_failures, prepare_workers, users_error
from kstream.spark.worker_rdd import WorkerRDD
from kstream.worker.current_record import CurrentRecord, between_chunks, hand_out, note_decoding, reading
from kstream.worker.worker_failure import failure_in

BAD = 7


@pytest.fixture(autouse=True)
def _key(sc: SparkContext) -> None:
    prepare_workers(sc)


class BadRecord(Exception):
    """The user's."""


def check(record: tuple[int, int]) -> tuple[int, int]:
    """Fail for the record at offset BAD."""
    if record[1] == BAD:
        raise BadRecord(f"{record[1]} is bad")
    return record


def check_value(value: int) -> int:
    return check((0, value))[1]


def chunks(decoder: Callable[[Any], Any]) -> Iterator[Iterator[Any]]:
    """Hand out two chunks of five offsets, 0 to 9, as (key, offset)."""
    with reading():
        for first in (0, 5):
            offsets = range(first, first + 5)
            for n in offsets:
                note_decoding(n, partial(CurrentRecord, "orders", 0))
                decoder((0, n))
            yield hand_out([(n % 2, n) for n in offsets], lambda i, first=first: CurrentRecord("orders", 0, first + i, 1_700_000_000_000))
            between_chunks()


def read(_index: int, decoder: Callable[[Any], Any] = lambda record: record) -> Iterator[Any]:
    return itertools.chain.from_iterable(chunks(decoder))


def read_ahead(records: Iterator[Any]) -> Iterator[Any]:
    while some := list(itertools.islice(records, 4)):
        yield from some


def then_check(records: Iterator[Any]) -> Iterator[Any]:
    for record in records:
        yield check(record)


def all_at_once(records: Iterator[Any]) -> None:
    for record in list(records):
        check(record)


def checked_later(record: tuple[int, int]) -> Iterator[Any]:
    yield 0
    yield check(record)


def keep(rdd: RDD[Any]) -> RDD[Any]:
    return rdd.persist(StorageLevel.MEMORY_ONLY)


def unpicklable(record: tuple[int, int]) -> Any:
    return (x for x in record) if record[1] == BAD else record


CERTAIN = {
    "map": lambda rdd: rdd.map(check).collect(),
    "map and others": lambda rdd: rdd.filter(bool).map(check).mapValues(str).count(),
    "flatMap": lambda rdd: rdd.flatMap(lambda r: [check(r)]).count(),
    "take of a flatMap": lambda rdd: rdd.flatMap(lambda r: [check(r)]).take(9),
    "flatMap with a generator": lambda rdd: rdd.flatMap(checked_later).count(),
    "filter": lambda rdd: rdd.filter(check).count(),
    "mapValues": lambda rdd: rdd.mapValues(check_value).count(),
    "flatMapValues": lambda rdd: rdd.flatMapValues(lambda v: [check_value(v)]).count(),
    "keyBy": lambda rdd: rdd.keyBy(check).count(),
    "groupBy": lambda rdd: rdd.groupBy(check).count(),
    "foreach": lambda rdd: rdd.foreach(check),
    "take": lambda rdd: rdd.map(check).take(9),
    "first chunks only": lambda rdd: rdd.map(check).zipWithIndex().count(),
    "reduceByKey": lambda rdd: rdd.reduceByKey(lambda a, b: a + check_value(b), 1).count(),
    "aggregateByKey": lambda rdd: rdd.aggregateByKey(0, lambda a, b: a + check_value(b), max, 1).count(),
    "partitionBy": lambda rdd: rdd.map(lambda r: (r[1], 0)).partitionBy(2, check_value).count(),
    "fold": lambda rdd: rdd.values().fold(0, lambda a, b: a + check_value(b)),
    "aggregate": lambda rdd: rdd.aggregate(0, lambda a, b: a + check(b)[1], max),
    "a persisted RDD that is computed": lambda rdd: keep(rdd.map(check)).map(str).count(),
    "under a foreachPartition": lambda rdd: rdd.map(check).foreachPartition(all_at_once),
    "under a mapPartitions that reads ahead": lambda rdd: rdd.map(check).mapPartitions(read_ahead).count(),
}
LAST = {
    "foreachPartition": (lambda rdd: rdd.foreachPartition(lambda it: [check(r) for r in it]), 7),
    "mapPartitions": (lambda rdd: rdd.mapPartitions(then_check).count(), 7),
    "mapPartitions that reads ahead": (lambda rdd: rdd.mapPartitions(lambda it: map(check, read_ahead(it))).count(), 7),
    "map after reading ahead": (lambda rdd: rdd.mapPartitions(read_ahead).map(check).count(), 7),
    "foreach after reading ahead": (lambda rdd: rdd.mapPartitions(read_ahead).foreach(check), 7),
    "the same function before and after reading ahead": (
        lambda rdd: rdd.map(lambda r: r).filter(bool).mapPartitions(read_ahead).map(check).count(),
        7,
    ),
    "all at once": (lambda rdd: rdd.foreachPartition(all_at_once), 9),
    "glom": (lambda rdd: rdd.glom().map(lambda records: list(map(check, records))).count(), 9),
    "a result that cannot be pickled": (lambda rdd: rdd.map(unpicklable).collect(), 9),
}
NONE = {
    "after a shuffle": lambda rdd: rdd.partitionBy(1).map(check).count(),
    "the reduce side": lambda rdd: rdd.groupByKey(1).mapValues(lambda values: [check_value(v) for v in values]).count(),
    "after a persisted RDD": lambda rdd: [(kept := keep(rdd)).count(), kept.map(check).count()],
}


def failed(sc: SparkContext, job: Callable[[RDD[Any]], Any], make: Callable[[int], Any] = read) -> Py4JJavaError:
    with pytest.raises(Py4JJavaError) as caught:
        job(WorkerRDD(sc, 1, make))
    return caught.value


def known(error: Py4JJavaError) -> str:
    failure = failure_in(str(error), key_of_failures(active_spark_context()))
    assert failure is not None
    return in_task(failure)


@pytest.mark.parametrize("case", CERTAIN)
def test_the_record_is_named(sc: SparkContext, case: str) -> None:
    assert known(failed(sc, CERTAIN[case])).endswith(", record orders-0@7 (2023-11-14T22:13:20.000Z)")


@pytest.mark.parametrize("case", LAST)
def test_a_function_that_may_have_read_ahead_is_told_the_last_record_and_no_record_for_certain(sc: SparkContext, case: str) -> None:
    job, last = LAST[case]
    found = known(failed(sc, job))
    assert ", record " not in f", {found}" and f"last record handed out: orders-0@{last} " in found


@pytest.mark.parametrize("case", NONE)
def test_where_no_record_is_known_none_is_named(sc: SparkContext, case: str) -> None:
    WorkerRDD(sc, 1, read).count()  # the worker has read records, in an earlier task
    assert "orders" not in known(failed(sc, NONE[case]))


def test_a_record_that_the_reader_cannot_decode_is_named_whoever_reads_ahead(sc: SparkContext) -> None:
    error = failed(sc, lambda rdd: rdd.mapPartitions(read_ahead).count(), partial(read, decoder=check))
    assert known(error) == "record orders-0@7"


def test_the_operation_is_named_with_the_line_of_the_users_function(sc: SparkContext) -> None:
    line = check.__code__.co_firstlineno
    assert known(failed(sc, CERTAIN["map"])).startswith(f"map of {__file__}:{line}, ")
    line = check_value.__code__.co_firstlineno
    assert known(failed(sc, CERTAIN["mapValues"])).startswith(f"mapValues of {__file__}:{line}, ")
    assert known(failed(sc, CERTAIN["reduceByKey"])).startswith("reduceByKey of ")
    assert known(failed(sc, LAST["mapPartitions"][0])).startswith("mapPartitions of ")
    assert known(failed(sc, LAST["all at once"][0])).startswith("foreachPartition of ")


def total(values: list[int], state: int | None) -> int:
    return (state or 0) + sum(check_value(v) for v in values)


def counted(key: int, value: Any, state: Any) -> int:
    return check_value(value)


def add(a: int, b: int) -> int:
    return check_value(a) + check_value(b)


def new_state(rdd: RDD[Any]) -> None:
    updated(rdd.context.emptyRDD(), rdd, with_time_and_key(total), Time(1000), 1).count()


def mapped(rdd: RDD[Any]) -> None:
    sc, at = rdd.context, Time(1000)
    rdds = SparkStateRDDs(sc)
    rdds.updated(rdd, rdds.initial([], 1, 1000), 1, MapWithState(counted, 1000, at.to_datetime(), None, False)).count()


CALLED_BY_KSTREAM = {
    "updateStateByKey": (new_state, "total", total),
    "mapWithState": (mapped, "counted", counted),
    "the reduce side of a window": (
        lambda rdd: rdd.partitionBy(2).map(lambda r: (0, r[1])).aggregateByKey(0, lambda _, value: min(value, BAD), add, 1).count(),
        "add",
        add,
    ),
}


@pytest.mark.parametrize("case", CALLED_BY_KSTREAM)
def test_a_function_of_the_user_that_kstream_calls_is_named_with_its_line(sc: SparkContext, case: str) -> None:
    job, name, function = CALLED_BY_KSTREAM[case]
    assert f"function {name} of {__file__}:{function.__code__.co_firstlineno + 1}" in known(failed(sc, job))


def test_the_users_exception_is_made_again_on_the_driver(sc: SparkContext) -> None:
    error = users_error(failed(sc, CERTAIN["map"]))
    assert type(error) is BadRecord and str(error) == "7 is bad" and where_of(error) == ""
    (words,) = getattr(error, "__notes__", [])
    assert words.splitlines()[-1].endswith("BadRecord: 7 is bad") and "in check" in words and "kstream-failure" not in words


def test_a_record_with_the_line_of_a_failure_runs_no_code_in_the_driver(sc: SparkContext, tmp_path: Path) -> None:
    """Also in a task without kstream's functions, whose worker adds no line of its own."""
    loaded = tmp_path / "loaded"
    pickled = base64.b64encode(pickle.dumps((ValueError, (), {}, (Touch(str(loaded)), ())))).decode()
    values = json.dumps({"type": "ValueError", "message": "no", "pickled": pickled})
    record = f"x\nkstream-failure: {values}\nkstream-failure: {'0' * 64} {values}"

    def parse(text: str) -> int:
        raise ValueError(f"cannot parse {text}")

    with pytest.raises(Py4JJavaError) as caught:
        sc.parallelize([record], 1).map(parse).count()
    told = users_error(caught.value)
    assert isinstance(told, ValueError) and str(told).startswith("cannot parse x") and not loaded.exists()


class Touch:
    """Makes a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def test_an_exception_that_cannot_be_made_again_stays_sparks_with_its_notes(sc: SparkContext) -> None:
    def fail(_record: Any) -> None:
        class Local(Exception):
            pass

        raise Local("only here")

    error = failed(sc, lambda rdd: rdd.foreach(fail))
    assert users_error(error) is None
    assert getattr(error, "__notes__", [""])[0].splitlines()[-1].endswith("Local: only here")


def test_a_task_that_ends_the_worker_stays_sparks_error(sc: SparkContext) -> None:
    def leave(_record: Any) -> None:
        raise SystemExit(3)

    assert users_error(failed(sc, lambda rdd: rdd.foreach(leave))) is None


def test_an_exception_that_speaks_of_the_process_that_raised_it_stays_sparks_error(sc: SparkContext) -> None:
    def fail(_record: Any) -> None:
        raise FencedError("another one", path="/c", epoch=1, newer_epoch=2)

    error = failed(sc, lambda rdd: rdd.foreach(fail))
    assert users_error(error) is None and is_of_a_task(error)
