"""WindowOperators: transformations of a stream's last batches. Durations are seconds, or a Duration."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Duration, Seconds, Time
from kstream.dstream import rdd_functions as fn
from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import on_workers, recorded

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream


class WindowOperators(DStreamBase):
    """The part of DStream that looks back over several batches."""

    @recorded
    def window(self, windowDuration: float | Duration, slideDuration: float | Duration | None = None) -> DStream:
        """All records of the last `windowDuration`, every `slideDuration` (default: this stream's own).

        Both must be multiples of this stream's slide duration. The first windows are partial.
        """
        from kstream.dstream.windowed import WindowedDStream

        slide = self.slide_duration if slideDuration is None else as_duration(slideDuration)
        return WindowedDStream(self._stream, as_duration(windowDuration), slide)

    @recorded
    @on_workers("func", "invFunc", "filterFunc")
    def reduceByKeyAndWindow(
        self,
        func: Callable[[Any, Any], Any],
        invFunc: Callable[[Any, Any], Any] | None,
        windowDuration: float | Duration,
        slideDuration: float | Duration | None = None,
        numPartitions: int | None = None,
        filterFunc: Callable[[Any], Any] | None = None,
    ) -> DStream:
        """reduceByKey over a window; each batch is reduced first, then the window's reduced batches.

        With `invFunc`, its inverse, a window is made of the one before: it costs what came in and what fell out, however long it is. That
        needs a checkpoint directory, and keys that fell out of the window stay, with what `invFunc` leaves of them, unless
        `filterFunc((key, value))` is false for them.
        """
        check_inverse("invFunc", invFunc, "reduceByKeyAndWindow(func, invFunc, windowDuration, slideDuration)")
        if invFunc is not None:
            from kstream.dstream.reduced_windowed import ReducedWindowedDStream

            slide = self.slide_duration if slideDuration is None else as_duration(slideDuration)
            reduced = self._stream.reduceByKey(func, numPartitions)
            partitions = self._partitions(numPartitions)
            return ReducedWindowedDStream(reduced, func, invFunc, as_duration(windowDuration), slide, partitions, filterFunc)
        windowed = self._stream.reduceByKey(func, numPartitions).window(windowDuration, slideDuration)
        reduced = windowed.reduceByKey(func, numPartitions)
        return reduced if filterFunc is None else reduced.filter(filterFunc)

    @recorded
    @on_workers("reduceFunc", "invReduceFunc")
    def reduceByWindow(
        self,
        reduceFunc: Callable[[Any, Any], Any],
        invReduceFunc: Callable[[Any, Any], Any] | None,
        windowDuration: float | Duration,
        slideDuration: float | Duration,
    ) -> DStream:
        """One record a window: all its records combined by `reduceFunc`. Nothing while no record has come.

        With `invReduceFunc` (such that invReduceFunc(reduceFunc(x, y), x) = y) the cost of a batch does not grow with the window, and a
        window that has become empty gives what is left of the last one; without, it gives nothing.
        """
        check_inverse("invReduceFunc", invReduceFunc, "reduceByWindow(reduceFunc, invReduceFunc, windowDuration, slideDuration)")
        keyed = self._stream.map(fn.under_one_key)
        return keyed.reduceByKeyAndWindow(reduceFunc, invReduceFunc, windowDuration, slideDuration, 1).map(fn.value_of)

    @recorded
    def countByWindow(self, windowDuration: float | Duration, slideDuration: float | Duration) -> DStream:
        """One record a window: how many records it has. Nothing while no record has come; later 0 for an empty window."""
        counted = self._stream.mapPartitions(fn.count_unless_empty)
        return counted.reduceByWindow(operator.add, operator.sub, windowDuration, slideDuration)

    @recorded
    def countByValueAndWindow(
        self, windowDuration: float | Duration, slideDuration: float | Duration, numPartitions: int | None = None
    ) -> DStream:
        """(value, how often it occurs) for each distinct record of a window. Values that fell out of it are forgotten."""
        keyed = self._stream.map(fn.with_one)
        return keyed.reduceByKeyAndWindow(operator.add, operator.sub, windowDuration, slideDuration, numPartitions, fn.above_zero)

    @recorded
    def groupByKeyAndWindow(
        self, windowDuration: float | Duration, slideDuration: float | Duration, numPartitions: int | None = None
    ) -> DStream:
        """(key, iterable of the values) of a window, the values of earlier batches first. Keys that fell out of it are forgotten.

        Each batch is grouped once. There is no inverse form: what is handed out is as large as the window anyway.
        """
        from kstream.dstream.transformed import Makes, TransformedDStream

        def group(time: Time, rdd: RDD[Any]) -> RDD[Any]:
            return fn.group_with_time(rdd, time.milliseconds, self._partitions(numPartitions))

        grouped = TransformedDStream([self._stream], group, "groupByKey", Makes.RDDS)
        windowed = grouped.window(windowDuration, slideDuration)
        return windowed.reduceByKey(operator.add, numPartitions).mapValues(fn.in_order_of_time)

    def slice(self, begin: datetime | float | Time, end: datetime | float | Time) -> list[RDD[Any]]:
        """The RDDs of the batches from `begin` to `end`, both included, oldest first. Moments are datetimes, seconds or Times.

        A moment between two batches counts as the batch before it. Left out are times before the first batch, those not planned yet
        and those older than this stream remembers (`ssc.remember`). May be called from any thread, blocks while a batch is being
        made. IllegalStateError before the start, and for a stream that no output depends on.
        """
        return self.remembered_rdds(as_time(begin), as_time(end))


def check_inverse(name: str, inverse: object, order: str) -> None:
    """TypeError for an inverse that is no function, such as the window's length in the order of Scala's arguments."""
    if inverse is not None and not callable(inverse):
        raise TypeError(f"{name} must be a function or None, it is {inverse!r}. The order is {order}; without an inverse give {name}=None")


def as_duration(value: float | Duration) -> Duration:
    return value if isinstance(value, Duration) else Seconds(value)


def as_time(moment: datetime | float | Time) -> Time:
    """A Time from what pyspark takes for one: a datetime (naive ones are local, as those handed to foreachRDD) or seconds."""
    if isinstance(moment, Time):
        return moment
    return Time(round((moment.timestamp() if isinstance(moment, datetime) else moment) * 1000))
