"""Streams that are made from other streams' RDDs of the same batch: transform, union, and the output operations."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kstream.batch import Job, OutputFigures
from kstream.batch_time import Time
from kstream.dstream.arguments import check_output_has_run
from kstream.dstream.node import DStreamNode, check_same_slide
from kstream.errors import NoRDDError
from kstream.output import Output, OutputBatch
from kstream.worker.persisted_records import behind_storage
from kstream.worker.record_failure import TRANSFORMATION, RecordStep, name_of
from kstream.worker.tolerant_operators import OPERATORS

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.core.rdd import PipelinedRDD


class RddOrigin(enum.Enum):
    """The origin of the RDDs of a TransformedDStream. It decides how Spark's pages show them."""

    FUSED = "no RDD of its own: PySpark runs the function in one pass with the next one"
    OPERATOR = "RDDs of the operator"
    USER = "RDDs of the user's own function, shown one by one within the operator"


class TransformedDStream(DStreamNode):
    """A stream of `func(time, rdd, …)` of the parents' RDDs of each batch. `func` runs on the driver, in the thread that makes RDDs."""

    def __init__(
        self,
        parents: Sequence[DStreamNode],
        func: Callable[..., RDD[Any] | None],
        name: str = "transform",
        origin: RddOrigin = RddOrigin.USER,
    ) -> None:
        check_same_slide(parents)
        super().__init__(parents[0].ssc, parents, parents[0].slide_duration)
        self._func = func
        self.operator = name
        self._origin = origin

    def compute(self, time: Time) -> RDD[Any] | None:
        """Return the function's RDD; None if no parent's inputs were planned for the batch.

        Raises:
            NoRDDError: a parent has no RDD, or the function did not return an RDD. Errors of the function are raised, too.
        """
        if not any(parent.has_batch(time) for parent in self.dependencies):
            return None  # a batch planned before these inputs were added
        rdds = [self._parent_rdd(parent, time) for parent in self.dependencies]
        if self._origin is RddOrigin.FUSED:
            result = self._func(time, *rdds)
        else:
            result = self.placed(time, lambda: self._func(time, *rdds), open_to_inner=self._origin is RddOrigin.USER)
        if not hasattr(result, "flatMap"):  # of the objects that a function may return, only an RDD has it
            what = "None" if result is None else f"a {type(result).__name__}"
            raise NoRDDError(
                f"the function of {self.operator} at {self.creation_site} returned {what} for batch {time}: "
                "it must return an RDD (an empty one: sc.emptyRDD())",
                time=time.milliseconds,
            )
        return result

    def _parent_rdd(self, parent: DStreamNode, time: Time) -> RDD[Any]:
        """Return the RDD of a parent. NoRDDError if it has none."""
        rdd = parent.getOrCompute(time)
        if rdd is None:
            raise NoRDDError(f"{self.operator}: a parent stream has no RDD for batch {time}", time=time.milliseconds)
        return rdd


class RecordDStream(TransformedDStream):
    """A stream of an operator on single records, such as `map`. It has the errors policy of its parent.

    The records of a parent that is persisted come from Spark's storage. Its partition is computed once more to find the record that fails.
    That works while no stream between the parent and the source is persisted: such a stream ends the policy.
    """

    def __init__(self, parent: DStreamNode, name: str, function: Any, plain: Callable[[RDD[Any]], RDD[Any]], preserves: bool) -> None:
        """
        Args:
            parent: the stream of the records.
            name: the name of the operator.
            function: the user's function.
            plain: makes the RDD without an errors policy.
            preserves: whether records stay in the partitions of their keys.
        """
        super().__init__([parent], self._made, name, RddOrigin.FUSED)
        self._function = function
        self._plain = plain
        self._preserves = preserves

    @property
    def tolerates_record_errors(self) -> bool:
        """Whether the parent has an errors policy other than `fail`, and the record of each element can be known."""
        return self.dependencies[0].tolerates_record_errors and self.knows_records

    @property
    def knows_records(self) -> bool:
        """Whether the record of each element can be known: at most one stream between this one and the source is persisted."""
        (parent,) = self.dependencies
        return parent.knows_records and not (parent.storage_level is not None and parent.stands_on_storage)

    @property
    def stands_on_storage(self) -> bool:
        """Whether a stream between this one and the source is persisted."""
        (parent,) = self.dependencies
        return parent.storage_level is not None or parent.stands_on_storage

    def _made(self, _time: Time, rdd: RDD[Any]) -> RDD[Any]:
        """Return the operator's RDD of the parent's RDD: by `plain`, or under an errors policy by a function that obeys it."""
        (parent,) = self.dependencies
        if parent.storage_level is not None and self.knows_records:
            rdd = rdd.mapPartitionsWithIndex(behind_storage(cast("PipelinedRDD[Any, Any]", rdd).func), True)
        if not self.tolerates_record_errors:
            return self._plain(rdd)
        step = RecordStep(TRANSFORMATION, f"{self.operator} at {self.creation_site}", name_of(self._function))
        return rdd.mapPartitions(partial(OPERATORS[self.operator], self._function, step), self._preserves)


class UnionDStream(TransformedDStream):
    """A stream of the records of all parents, in the parents' order."""

    def __init__(self, parents: Sequence[DStreamNode]) -> None:
        super().__init__(parents, lambda _time, *rdds: self._union(rdds), "union", RddOrigin.OPERATOR)

    def has_batch(self, time: Time) -> bool:
        """Return whether the inputs of any parent were planned for the batch. So an input that is added later hides no older batches."""
        return any(parent.has_batch(time) for parent in self.dependencies)

    def compute(self, time: Time) -> RDD[Any] | None:
        """Return the union of the parents that were planned for the batch; None if there are none. NoRDDError if one has no RDD."""
        rdds = [self._parent_rdd(parent, time) for parent in self.dependencies if parent.has_batch(time)]
        return self.placed(time, lambda: self._union(rdds)) if rdds else None

    def _union(self, rdds: Sequence[RDD[Any]]) -> RDD[Any]:
        return rdds[0] if len(rdds) == 1 else self.ssc.sparkContext.union(list(rdds))


class ForEachDStream(DStreamNode):
    """An output operation: it runs `func(time, rdd)` on the driver, in a job thread, for each batch."""

    def __init__(
        self,
        parent: DStreamNode,
        func: Callable[[Time, RDD[Any]], object] | Output,
        name: str = "foreachRDD",
        *,
        own: bool = False,
    ) -> None:
        """
        Args:
            parent: the stream whose RDDs `func` gets.
            func: the output function. Returns what the function of the user has returned. Or an output that is more than a function.
            name: the name of the operation.
            own: `func` is a function of kstream, so Spark's pages show its Spark jobs where the user called the operation.
        """
        super().__init__(parent.ssc, (parent,), parent.slide_duration)
        self.output = func if isinstance(func, Output) else None
        """The output, if it takes part in the life of a batch."""
        for function in () if self.output is None else self.output.worker_functions():
            self.recorder.for_workers(function)
        self._func = func
        self._own = own
        self.operator = name
        self._inputs: Sequence[Any] | None = None

    def redirect(self, func: Callable[[Time, RDD[Any]], object]) -> None:
        """Replace the output by a function: for a replay that must not write to the sink. Called before the first batch."""
        self._func, self.output = func, None

    def compute(self, time: Time) -> None:
        return None

    def generate_job(self, batch: OutputBatch, output_op_id: int) -> Job | None:
        """Return the job of a batch; None if the parent has no RDD at this time, for example because its window does not slide now.

        Errors of making the RDD are raised.

        Args:
            batch: the batch.
            output_op_id: the number of this output in the graph.
        """
        time = batch.time
        rdd = self.dependencies[0].getOrCompute(time)
        if rdd is None:
            return None
        if self._inputs is None:  # the graph does not change once batches run
            self._inputs = self.ssc.graph.inputs_of(self)
        inputs = self._inputs

        def run() -> OutputFigures | None:
            for stream in inputs:
                for name, value in stream.task_properties_of(time).items():
                    self.ssc.sparkContext.setLocalProperty(name, value)
            figures = self._write(batch, rdd, inputs)
            for stream in inputs:
                stream.check_records_of(time)
            return figures

        return Job(
            time=time,
            output_op_id=output_op_id,
            run=run,
            name=f"{self.operator} at {self.creation_site}",
            call_site=str(self.creation_site),
            scope=None if self.base_scope is None else self.base_scope.of_batch(time, self.ssc.graph.batch_duration),
            outputs=() if self.output is None else tuple(part.name for part in self.output.parts() if part.is_ordered),
        )

    def _write(self, batch: OutputBatch, rdd: RDD[Any], inputs: Sequence[Any]) -> OutputFigures | None:
        """Run the function or the Output for a batch, in the thread of its job. Return what an Output has measured.

        An Output is prepared first, and says which partitions are to be computed. If tasks of an input report, all are computed.
        """
        func = self._func
        if isinstance(func, Output):
            partitions = func.prepare(batch, rdd)
            if any(stream.tasks_report for stream in inputs):
                partitions = None
            measured = self.ssc.graph.placement.called_at(self.creation_site, lambda: func.run(batch, rdd, partitions))
            return measured if isinstance(measured, OutputFigures) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if self._own:
            self.ssc.graph.placement.called_at(self.creation_site, lambda: func(batch.time, rdd))
        else:
            check_output_has_run(f"{self.operator} at {self.creation_site}", func(batch.time, rdd))
        return None
