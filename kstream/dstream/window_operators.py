"""WindowOperators: transformations of a stream's last batches. Durations are seconds, or a Duration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Duration, Seconds
from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import recorded

if TYPE_CHECKING:
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
        if invFunc is not None:
            from kstream.dstream.reduced_windowed import ReducedWindowedDStream

            slide = self.slide_duration if slideDuration is None else as_duration(slideDuration)
            reduced = self._stream.reduceByKey(func, numPartitions)
            partitions = self._partitions(numPartitions)
            return ReducedWindowedDStream(reduced, func, invFunc, as_duration(windowDuration), slide, partitions, filterFunc)
        windowed = self._stream.reduceByKey(func, numPartitions).window(windowDuration, slideDuration)
        reduced = windowed.reduceByKey(func, numPartitions)
        return reduced if filterFunc is None else reduced.filter(filterFunc)


def as_duration(value: float | Duration) -> Duration:
    return value if isinstance(value, Duration) else Seconds(value)
