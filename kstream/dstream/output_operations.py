"""OutputOperations: what ends a stream and makes jobs of its batches."""

from __future__ import annotations

from collections.abc import Callable

from kstream.dstream import rdd_functions as fn
from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import recorded
from kstream.dstream.record_operators import takes_one_argument


class OutputOperations(DStreamBase):
    """The part of DStream that registers outputs."""

    @recorded
    def foreachRDD(self, func: Callable[..., object]) -> None:
        """An output operation: func(rdd) or func(time, rdd) for each batch, on the driver.

        `time` is a datetime in local time without a zone, as in pyspark. A key for idempotent writes is `round(time.timestamp() * 1000)`,
        the batch time in milliseconds: local time repeats where the clock is set back.
        """
        if takes_one_argument(func):
            self._output("foreachRDD", lambda _time, rdd: func(rdd))
        else:
            self._output("foreachRDD", lambda time, rdd: func(time.to_datetime(), rdd))

    @recorded
    def pprint(self, num: int = 10) -> None:
        """An output operation: prints the first `num` records of each batch, as pyspark does."""
        self._output("pprint", lambda time, rdd: fn.print_first(time.to_datetime(), rdd, num), own=True)

    @recorded
    def print(self, num: int = 10) -> None:
        """The same as pprint."""
        self.pprint(num)

    @recorded
    def saveAsTextFiles(self, prefix: str, suffix: str | None = None) -> None:
        """An output operation: the records' texts of each batch in a directory `prefix-<batch time in ms>[.suffix]`, a file a partition.

        `prefix` is a path or URL as Hadoop takes it. A batch that is run again after a restart writes the same files again.
        """
        self._output("saveAsTextFiles", lambda time, rdd: rdd.saveAsTextFile(fn.file_name(prefix, suffix, time.milliseconds)), own=True)
