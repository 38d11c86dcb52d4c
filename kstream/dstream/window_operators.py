"""WindowOperators: transformations of a stream's last batches. Durations are seconds, or a Duration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Duration, Seconds
from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import recorded
from kstream.errors import ConfigurationError

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
        invFunc: None,
        windowDuration: float | Duration,
        slideDuration: float | Duration | None = None,
        numPartitions: int | None = None,
        filterFunc: Callable[[Any], Any] | None = None,
    ) -> DStream:
        """reduceByKey over a window; each batch is reduced first, then the window's reduced batches.

        `invFunc` must be None: windows with an inverse function are not offered yet.
        """
        if invFunc is not None:
            raise ConfigurationError(
                "reduceByKeyAndWindow with an inverse function is not offered yet: pass invFunc=None (the same totals; keys that "
                "fell out of the window are gone instead of staying with a zero)",
                key="invFunc", value=invFunc,
            )  # fmt: skip
        windowed = self._stream.reduceByKey(func, numPartitions).window(windowDuration, slideDuration)
        reduced = windowed.reduceByKey(func, numPartitions)
        return reduced if filterFunc is None else reduced.filter(filterFunc)


def as_duration(value: float | Duration) -> Duration:
    return value if isinstance(value, Duration) else Seconds(value)
