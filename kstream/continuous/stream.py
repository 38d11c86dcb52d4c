"""ContinuousStream: the operators and outputs of continuous processing, as users call them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from kstream import connectors
from kstream.continuous.operators import Pipeline
from kstream.public_call import public_call, refused

T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")
U = TypeVar("U")

_INSTEAD = "Use a stream of batches for it, in a job of its own"
_SHUFFLE = "moves records between partitions, and a task of continuous processing has only its own"
_STATE = "keeps state between records, and continuous processing keeps positions only"
_TWO = "needs a second stream, and a job of continuous processing has one"
_BATCH = "works on batches, and continuous processing has none"
_REFUSED = {
    **dict.fromkeys(
        ("repartition", "partitionBy", "reduce", "reduceByKey", "groupByKey", "combineByKey", "count", "countByValue"), _SHUFFLE
    ),
    **dict.fromkeys(("cogroup", "join", "leftOuterJoin", "rightOuterJoin", "fullOuterJoin", "union", "transformWith"), _TWO),
    **dict.fromkeys(("updateStateByKey", "mapWithState"), _STATE),
    **dict.fromkeys(("window", "reduceByWindow", "countByWindow", "countByValueAndWindow", "groupByKeyAndWindow"), _BATCH),
    **dict.fromkeys(("reduceByKeyAndWindow", "slice", "transform", "foreachRDD", "foreachBatch", "pprint", "print"), _BATCH),
    **dict.fromkeys(("saveAsTextFiles", "glom", "mapPartitionsWithIndex", "persist", "cache", "checkpoint"), _BATCH),
}
"""Operators of DStream that a continuous stream has not, with the reason."""


@dataclass(frozen=True, slots=True)
class ContinuousOutput:
    """One output of a continuous job.

    Attributes:
        operator: the method that made it.
        pipeline: the operators before it; for `saveToKafka` the last one encodes the record.
        target: what a connector writes to; None for `foreach`, whose function is the last operator.
    """

    operator: str
    pipeline: Pipeline
    target: Any = None


class ContinuousStream(Generic[T_co]):
    """Records that are processed as they come, without batches. Its operators make new streams; `foreach` and `saveToKafka` are outputs.

    Functions are any Python functions, and run in the workers. What needs a shuffle, a window or state is refused at its call.
    """

    def __init__(self, add: Callable[[ContinuousOutput], None], pipeline: Pipeline | None = None) -> None:
        self._add = add
        self._pipeline = pipeline or Pipeline()

    def map(self, f: Callable[[T_co], U]) -> ContinuousStream[U]:
        """Apply a function to each record."""
        return self._then("map", f)

    def flatMap(self, f: Callable[[T_co], Iterable[U]]) -> ContinuousStream[U]:
        """Apply a function that makes any number of records of each record."""
        return self._then("flatMap", f)

    def filter(self, f: Callable[[T_co], Any]) -> ContinuousStream[T_co]:
        """Keep the records for which f(record) is true."""
        return self._then("filter", f)

    def mapValues(self: ContinuousStream[tuple[K, V]], f: Callable[[V], U]) -> ContinuousStream[tuple[K, U]]:
        """Apply a function to the value of each (key, value) pair."""
        return self._then("mapValues", f)

    def flatMapValues(self: ContinuousStream[tuple[K, V]], f: Callable[[V], Iterable[U]]) -> ContinuousStream[tuple[K, U]]:
        """Make any number of pairs of each (key, value) pair: one of each element of f(value)."""
        return self._then("flatMapValues", f)

    def mapPartitions(self, f: Callable[[Iterator[T_co]], Iterable[U]]) -> ContinuousStream[U]:
        """Apply a function to each chunk of records that a task reads at once, all of one partition and in order.

        A chunk has what is there: one record at a quiet time, thousands behind a backlog.
        """
        return self._then("mapPartitions", f)

    @public_call
    def foreach(self, f: Callable[[T_co], Any]) -> None:
        """Call a function for each record, at least once: an output.

        After a failure, records of up to a second are passed to the function again.
        """
        _check("foreach", f)
        self._add(ContinuousOutput("foreach", self._pipeline.then("map", f)))

    @public_call
    def saveToKafka(
        self,
        topic: str | None,
        kafkaParams: Mapping[str, Any],
        *,
        key: Callable[[T_co], bytes | str | None] | None = None,
        value: Callable[[T_co], bytes | str | None] | None = None,
        headers: Callable[[T_co], Sequence[tuple[str, bytes | None]]] | None = None,
        partition: Callable[[T_co], int | None] | None = None,
        delivery: str = "exactly-once",
        name: str | None = None,
        prefix: str = "kstream",
    ) -> None:
        """Write each record to Kafka, exactly once by default: an output. Arguments as for `DStream.saveToKafka`."""
        functions = {"key": key, "value": value, "headers": headers, "partition": partition}
        encode, target = connectors.load("kafka").continuous_output(topic, kafkaParams, functions, delivery, name, prefix)
        self._add(ContinuousOutput("saveToKafka", self._pipeline.then("map", encode), target))

    def _then(self, name: str, function: Callable[..., Any]) -> ContinuousStream[Any]:
        _check(name, function)
        return ContinuousStream(self._add, self._pipeline.then(name, function))

    def __getattr__(self, name: str) -> NoReturn:
        if name in _REFUSED:
            raise AttributeError(f"a continuous stream has no {name}: {name} {_REFUSED[name]}. {_INSTEAD}")
        raise AttributeError(f"a continuous stream has no {name}")


def _check(operator: str, function: object) -> None:
    if not callable(function):
        raise refused(TypeError(f"{operator}: a function is needed, not {function!r}"))
