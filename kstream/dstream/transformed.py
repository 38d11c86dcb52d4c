"""Streams made of other streams' RDDs of the same batch: transform, union, and the output operation foreachRDD."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kstream.batch import Job
from kstream.batch_time import Time
from kstream.dstream.dstream import DStream
from kstream.errors import NoRDDError

if TYPE_CHECKING:
    from pyspark import RDD


def same_slide(parents: Sequence[DStream]) -> None:
    """ValueError unless the streams belong to one context and slide together."""
    if not parents:
        raise ValueError("needs at least one stream")
    if any(p.ssc is not parents[0].ssc for p in parents):
        raise ValueError("the streams belong to different contexts")
    slides = sorted({p.slide_duration for p in parents})
    if len(slides) > 1:
        raise ValueError(f"the streams have different slide durations: {', '.join(map(str, slides))}")


class Makes(enum.Enum):
    """What the function of a TransformedDStream makes in the JVM, and whose it is: how its RDDs are shown on Spark's pages."""

    NOTHING_YET = "PySpark runs it in one pass with what comes next"
    RDDS = "RDDs of the operator"
    USERS_RDDS = "RDDs of the user's own function, shown one by one within the operator"


class TransformedDStream(DStream):
    """Applies `func(time, rdd, …)` to the parents' RDDs of each batch, on the driver, in the generator's thread."""

    def __init__(
        self, parents: Sequence[DStream], func: Callable[..., RDD[Any] | None], name: str = "transform", makes: Makes = Makes.USERS_RDDS
    ) -> None:
        same_slide(parents)
        super().__init__(parents[0].ssc, parents, parents[0].slide_duration)
        self._func = func
        self.operator = name
        self._makes = makes

    def compute(self, time: Time) -> RDD[Any] | None:
        if not any(parent.has_batch(time) for parent in self.dependencies):
            return None  # a batch planned before these inputs were added
        rdds = [self._parent_rdd(parent, time) for parent in self.dependencies]
        if self._makes is Makes.NOTHING_YET:
            result = self._func(time, *rdds)
        else:
            result = self.placed(time, lambda: self._func(time, *rdds), open_to_inner=self._makes is Makes.USERS_RDDS)
        if not hasattr(result, "flatMap"):  # which of all that might be returned by mistake only an RDD has
            what = "None" if result is None else f"a {type(result).__name__}"
            raise NoRDDError(
                f"the function of {self.operator} at {self.creation_site} returned {what} for batch {time}: "
                "it must return an RDD (an empty one: sc.emptyRDD())",
                time=time.milliseconds,
            )
        return result

    def _parent_rdd(self, parent: DStream, time: Time) -> RDD[Any]:
        rdd = parent.getOrCompute(time)
        if rdd is None:
            raise NoRDDError(f"{self.operator}: a parent stream has no RDD for batch {time}", time=time.milliseconds)
        return rdd


class UnionDStream(TransformedDStream):
    """All parents' records of each batch, in the parents' order."""

    def __init__(self, parents: Sequence[DStream]) -> None:
        super().__init__(parents, lambda _time, *rdds: self.context_rdd_union(rdds), "union", Makes.RDDS)

    def has_batch(self, time: Time) -> bool:
        """Whether any parent's inputs were planned for the batch: an input added later takes nothing from the others."""
        return any(parent.has_batch(time) for parent in self.dependencies)

    def compute(self, time: Time) -> RDD[Any] | None:
        rdds = [self._parent_rdd(parent, time) for parent in self.dependencies if parent.has_batch(time)]
        return self.placed(time, lambda: self.context_rdd_union(rdds)) if rdds else None

    def context_rdd_union(self, rdds: Sequence[RDD[Any]]) -> RDD[Any]:
        return rdds[0] if len(rdds) == 1 else self.ssc.sparkContext.union(list(rdds))


class ForEachDStream(DStream):
    """An output operation: `func(time, rdd)` on the driver, in a job thread, for each batch."""

    def __init__(self, parent: DStream, func: Callable[[Time, RDD[Any]], object], name: str = "foreachRDD", *, own: bool = False) -> None:
        super().__init__(parent.ssc, (parent,), parent.slide_duration)
        self._func = func
        self._own = own
        self.operator = name

    def redirect(self, func: Callable[[Time, RDD[Any]], object]) -> None:
        """Lets another function have what this output would have been handed: for a replay that is to leave the sink alone."""
        self._func = func

    def compute(self, time: Time) -> None:
        return None

    def generate_job(self, time: Time, output_op_id: int) -> Job | None:
        """The batch's job; None when the parent has no RDD at this time (its window does not slide now)."""
        rdd = self.dependencies[0].getOrCompute(time)
        if rdd is None:
            return None
        func, placement = self._func, self.ssc.graph.placement

        def run() -> None:
            if self._own:
                placement.called_at(self.creation_site, lambda: func(time, rdd))
            else:
                func(time, rdd)

        return Job(
            time=time,
            output_op_id=output_op_id,
            run=run,
            name=f"{self.operator} at {self.creation_site}",
            call_site=str(self.creation_site),
            scope=None if self.base_scope is None else self.base_scope.of_batch(time, self.ssc.graph.batch_duration),
        )
