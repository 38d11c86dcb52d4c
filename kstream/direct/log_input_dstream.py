"""LogInputDStream: the direct stream of any Log. Each batch is one offset range of every partition."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kstream.batch import Json
from kstream.batch.plan import FAIL, LOG, kind_of
from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.conf import Settings
from kstream.direct.direct_input_dstream import DirectInputDStream
from kstream.direct.log_plan import KIND, LogPlan
from kstream.direct.log_planner import LogPlanner
from kstream.dstream.ports import InputServices, StreamHost, services_of
from kstream.dstream.recipe import Recipe
from kstream.errors import ConfigurationError, NotRecoverableError
from kstream.offsets.admission_control import AdmissionControl, AdmissionSettings
from kstream.offsets.log import Log
from kstream.offsets.offset_range import skipped_between
from kstream.offsets.positions import Positions, PositionsLike
from kstream.offsets.settings import DOWNTIME, LOG_FIRST_BATCH_RECORDS, LOG_MAX_RATE_PER_PARTITION, LOG_ON_DATA_LOSS
from kstream.scheduler.settings import BACKPRESSURE_ENABLED, CONCURRENT_JOBS, INITIAL_RATE

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.batch_time import BatchTime
    from kstream.direct.log_rdd import LogRDD
    from kstream.dstream.dstream import DStream
    from kstream.output import Output

U = TypeVar("U")


class LogInputDStream(DirectInputDStream[LogPlan]):
    """The direct stream of a Log: exact over restarts, with offset ranges that commands show.

    The driver asks the Log for its ends once a batch. The tasks read the ranges. Spark's rate settings for back-pressure hold, and
    `spark.streaming.kstream.log.maxRatePerPartition`. Lost records follow `spark.streaming.kstream.log.onDataLoss`.

    Example:
        rows = LogInputDStream(ssc, EventsTable("/var/lib/orders/events.db"), startingOffsets="earliest")
        rows.foreachRDD(lambda rdd: print(rdd.offsetRanges(), rdd.count()))
    """

    operator = "log stream"
    logger = logging.getLogger("kstream.offsets")

    def __init__(
        self,
        ssc: StreamHost,
        log: Log,
        startingOffsets: Positions | PositionsLike = "latest",
        maxRecordsPerTask: int = 0,
        *,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create the stream and add it to the graph of its context. Does not ask the Log.

        Args:
            ssc: the StreamingContext.
            log: the Log. Tasks get a pickled copy.
            startingOffsets: where the first start begins: "earliest", "latest", "-1000" (records before the end), or offsets by partition;
                where the Log has times also "-10m", a datetime or ISO time. A partition that comes later begins at its earliest offset.
            maxRecordsPerTask: the length above which several tasks read a range; 0 is no limit.
            clock: the clock, for tests; None for the system's.
            pause: waits for seconds between attempts, for tests.

        Raises:
            ConfigurationError: the Log has no name, a policy does not exist, or a starting offset cannot be understood.
        """
        if not log.name:
            raise ConfigurationError(f"{type(log).__name__} has no `name`: set it to one word for the system", key="name", value="")
        self._starting_offsets = Positions.parse(startingOffsets, "startingOffsets")
        settings = services_of(ssc).settings
        super().__init__(ssc, settings[LOG_ON_DATA_LOSS])
        self.log = log
        self._max_records_per_task = maxRecordsPerTask
        self._planner = LogPlanner(
            log,
            self._starting_offsets,
            AdmissionControl(_admission_settings(settings), self.slide_duration),
            clock or SystemClock(),
            by_timestamp=settings[DOWNTIME] == "by-timestamp",
            tolerate_loss=self.on_data_loss != FAIL,
            pause=pause,
        )

    @property
    def planner(self) -> LogPlanner:
        return self._planner

    # -- life

    def start(self, services: InputServices) -> None:
        """Ask the Log for its ends, and at a first start for the starting offsets. Blocks. An error of the Log fails `ssc.start()`.

        Raises:
            ConfigurationError: a starting offset cannot be resolved.
        """
        super().start(services)
        self._planner.begin()

    def decode(self, data: Mapping[str, Json]) -> LogPlan:
        """Return the plan of a stored form. NotRecoverableError if the data is of another kind of input or of another Log."""
        if kind_of(data) != LOG:
            raise self.another_kind(data)
        if data["log"] != self.log.name:
            raise NotRecoverableError(
                f"{self!r} reads the log {self.log.name!r}, and its stored plans are of the log {data['log']!r}: the `name` of the Log or "
                "the order of the inputs has changed. Restore it, or use a new checkpoint directory."
            )
        return LogPlan.decode(data)

    def skipped_between(self, before: LogPlan, after: LogPlan) -> Sequence[str]:
        """Return the offsets between two consecutive plans that neither plan has, as texts. Pure."""
        return skipped_between(before.until_offsets, after.ranges, after.lost)

    def _source_text(self, plan: LogPlan) -> str:
        """Return the Log and the topics of a plan, as `sqlite[events]`."""
        return f"{self.log.name}[{', '.join(sorted({r.topic for r in plan.ranges}))}]"

    # -- the batch

    def rdd(self, time: Time, plan: LogPlan) -> LogRDD:
        """Return the LogRDD of the plan's ranges. The tasks read the Log, and raise the errors of the read."""
        from kstream.direct.log_rdd import LogRDD  # imported late, because it needs a JVM and planning does not

        reports, tolerate = self._reports_of_tasks(), self.on_data_loss != FAIL
        return LogRDD(self.ssc.sparkContext, self.log, plan, self._max_records_per_task, reports, time.milliseconds, tolerate)

    if TYPE_CHECKING:  # type checkers know the RDDs of this stream, which have offset ranges

        def transform(self, func: Callable[[LogRDD], RDD[U]] | Callable[[BatchTime, LogRDD], RDD[U]]) -> DStream[U]: ...

        def foreachRDD(self, func: Callable[[LogRDD], Any] | Callable[[BatchTime, LogRDD], Any] | Output) -> None: ...

    # -- recovery without setup

    def recipe(self) -> Recipe:
        """Return how to create the stream again. `params` are the parameters of the Log, for commands, if it has any to store."""
        args: dict[str, Json] = {"startingOffsets": self._starting_offsets.to_json(), "maxRecordsPerTask": self._max_records_per_task}
        params = self.log.parameters()
        if params is not None:
            args["params"] = dict(params)
        log: Any = self.log
        return Recipe(KIND + self.log.name, args, {"log": log})

    def worker_functions(self) -> Sequence[Any]:
        """Return the Log, which the tasks get. start() tries to pickle it."""
        return [self.log]

    @staticmethod
    def from_recipe(ssc: StreamHost, recipe: Recipe) -> LogInputDStream:
        """Create the stream from the result of `recipe`, at a restart."""
        log: Any = recipe.functions["log"]
        return LogInputDStream(ssc, log, Positions.from_json(recipe.args["startingOffsets"]), recipe.args["maxRecordsPerTask"])


def _admission_settings(settings: Settings) -> AdmissionSettings:
    most = settings[LOG_MAX_RATE_PER_PARTITION]
    return AdmissionSettings(
        max_rate=lambda _: most,
        caps_rates=most > 0,
        backpressure=settings[BACKPRESSURE_ENABLED],
        initial_rate=settings[INITIAL_RATE],
        concurrent_jobs=settings[CONCURRENT_JOBS],
        first_records=settings[LOG_FIRST_BATCH_RECORDS],
    )
