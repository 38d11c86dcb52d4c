"""The functions that PySpark has put together for a task, and where in them an exception was raised.

PySpark runs a chain of narrow operations in one pass: each stage takes the iterator of the one before. A stage of `map` asks for the next
element only when it is done with this one. So an exception in its function is of the record that the reader has handed out last. A function
of `mapPartitions` may read ahead, and after it nobody knows.

Only PySpark's own functions are recognised, by their names. They are the same from 3.5 to 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any

_READERS = ("WorkerRDD.__init__.<locals>.compute", "behind_storage.<locals>.elements")
"""kstream's functions that hand out elements and know the record of each."""
_PIPELINE = "PipelinedRDD.__init__.<locals>.pipeline_func"
_PARTITIONS = "RDD.mapPartitions.<locals>.func"
_FOREACH_PARTITION = "RDD.foreachPartition.<locals>.func"
_ONE_BY_ONE = frozenset(
    f"RDD.{name}"
    for name in (
        "map.<locals>.func",
        "flatMap.<locals>.func",
        "filter.<locals>.func",
        "foreach.<locals>.processPartition",
        "reduce.<locals>.func",
        "fold.<locals>.func",
        "aggregate.<locals>.func",
        "treeAggregate.<locals>.aggregatePartition",
        "treeAggregate.<locals>.mapPartition",
        "reduceByKeyLocally.<locals>.reducePartition",
        "combineByKey.<locals>.combineLocally",
        "groupByKey.<locals>.combine",
        "partitionBy.<locals>.add_shuffle_key",
        "countByValue.<locals>.countPartition",
        "histogram.<locals>.histogram",
        "zipWithIndex.<locals>.func",
        "zipWithUniqueId.<locals>.func",
        "saveAsTextFile.<locals>.func",
        "take.<locals>.takeUpToNumLeft",
        "count.<locals>.<lambda>",
        "sum.<locals>.<lambda>",
        "stats.<locals>.<lambda>",
        "isEmpty.<locals>.<lambda>",
    )
) | {"RDDSampler.func", "RDDRangeSampler.func", "RDDStratifiedSampler.func"}
"""PySpark's functions of partitions that work on one element at a time."""
_OWN_ONE_BY_ONE = frozenset({"_count_partition", "count_unless_empty"})
"""The same of kstream's."""


@dataclass(frozen=True, slots=True)
class PipelineFunction:
    """One function of the pipeline.

    Attributes:
        code: its code; None for one without.
        name: its qualified name.
        each: what it calls for each element; None if it is unknown or is no single function.
        one_by_one: whether it is known to work on one element at a time.
    """

    code: CodeType | None
    name: str
    each: Any
    one_by_one: bool

    @property
    def operator(self) -> str:
        """The method of RDD that the user has called, as far as names say; "" if unknown."""
        for name in (*_names_in(self.each), self.name):
            method = _method(name)
            if method:
                return method
        return ""


@dataclass(frozen=True, slots=True)
class Failing:
    """Where in a pipeline an exception was raised.

    Attributes:
        from_reader: whether the pipeline begins with a reader of kstream.
        one_by_one: whether the exception is of the record that the reader has handed out last, for certain.
        operator: the operation whose function failed; "" if unknown.
        each: the user's function that failed; None if unknown.
    """

    from_reader: bool
    one_by_one: bool
    operator: str = ""
    each: Any = None


def where_failed(traceback: TracebackType | None) -> Failing | None:
    """Return where in the pipeline of a task an exception was raised. None if it was raised outside of a pipeline of RDDs.

    Args:
        traceback: the traceback of the exception, from the worker's main function on.
    """
    frames = list(_frames(traceback))
    running = next((i for i, frame in enumerate(frames) if frame.f_code.co_name == "process" and "func" in frame.f_locals), None)
    if running is None:
        return None
    stages = list(stages_of(frames[running].f_locals["func"]))
    if not stages:
        return None
    inner = frames[running + 1 :]
    depth, failed = _failed_stage(inner, stages)
    pickling = any(frame.f_code.co_name == "dumps" and _is_of(frame, "serializers") for frame in inner[depth:])
    from_reader = stages[0].name in _READERS
    certain = from_reader and not pickling and all(stage.one_by_one for stage in stages[1 : failed + 1])
    stage = stages[failed]
    if pickling or failed == 0:
        return Failing(from_reader, certain)
    return Failing(from_reader, certain, stage.operator, stage.each)


def stages_of(func: Any) -> Iterator[PipelineFunction]:
    """Yield the stages of a function of partitions, in the order in which elements pass through them."""
    if _name(func) == _PIPELINE:
        cells = _cells(func)
        yield from stages_of(cells.get("prev_func"))
        yield from stages_of(cells.get("func"))
    elif func is not None:
        yield _stage(func)


def _stage(func: Any) -> PipelineFunction:
    """Return the stage of a function of a partition and its index."""
    name, cells = _name(func), _cells(func)
    if name in (_PARTITIONS, _FOREACH_PARTITION) and _is_sparks(func):
        inner = cells.get("f")
        if _is_sparks(inner) or _name(inner) == _FOREACH_PARTITION:
            return _stage(inner)
        known = _name(inner) in _OWN_ONE_BY_ONE and str(getattr(inner, "__module__", "")).startswith("kstream.")
        return PipelineFunction(getattr(inner, "__code__", None), name, inner, known)
    each = next((_unwrapped(cells[key]) for key in ("f", "op", "seqOp", "func", "partitionFunc") if key in cells), None)
    if "agg" in cells:
        each, maker = _unwrapped(cells["agg"].mergeValue), _unwrapped(cells["agg"].createCombiner)
        called = _name(maker) if _is_sparks(maker) else name
        return PipelineFunction(getattr(func, "__code__", None), called, each, name in _ONE_BY_ONE)
    return PipelineFunction(getattr(func, "__code__", None), name, each, _is_sparks(func) and name in _ONE_BY_ONE)


def _failed_stage(frames: list[FrameType], stages: list[PipelineFunction]) -> tuple[int, int]:
    """Return the place in `frames` and the index of the stage in which an exception was raised: the last stage if nothing tells.

    A later stage is the careful answer: more stages must work one by one then. Functions of `map` and the like are called through a wrapper
    of PySpark, which tells them from a call of the same function in another stage.
    """
    for depth in range(len(frames) - 1, -1, -1):
        frame = frames[depth]
        found: list[int] = []
        if frame.f_code.co_name == "wrapper" and _is_of(frame, "util"):
            called = frame.f_locals.get("f")
            found = [i for i, stage in enumerate(stages) if called is not None and stage.each is called]
        if not found:
            found = [i for i, stage in enumerate(stages) if stage.code is frame.f_code]
        if found:
            return depth, found[-1]
    return 0, len(stages) - 1


def _names_in(each: Any) -> Iterator[str]:
    """Yield the name of what a stage calls for each element, if that is a function of PySpark, such as the one of `mapValues`."""
    if each is not None and _is_sparks(each):
        yield _name(each)


def _method(name: str) -> str:
    """Return the method of RDD in a qualified name; "" if there is none."""
    return name.split(".")[1] if name.startswith("RDD.") else ""


def users_function(each: Any) -> Any:
    """Return the user's function inside a function of PySpark, as in `mapValues`. The function itself if it is no function of PySpark."""
    for _ in range(3):
        if not _is_sparks(each):
            break
        cells = _cells(each)
        inner = next((cells[key] for key in ("f", "func", "seqFunc") if key in cells), None)
        if inner is None:
            return None
        each = _unwrapped(inner)
    return each


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    """Yield the frames of a traceback, the outermost first."""
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _unwrapped(func: Any) -> Any:
    """Return the function inside PySpark's wrapper against StopIteration."""
    return _cells(func).get("f", func) if _name(func) == "fail_on_stopiteration.<locals>.wrapper" else func


def _is_of(frame: FrameType, module: str) -> bool:
    return frame.f_globals.get("__name__") == f"pyspark.{module}"


def _is_sparks(func: Any) -> bool:
    return str(getattr(func, "__module__", "")).partition(".")[0] == "pyspark"


def _name(func: Any) -> str:
    """Return the qualified name of a function; "" if it has none."""
    return str(getattr(func, "__qualname__", ""))


def _cells(func: Callable[..., Any] | Any) -> dict[str, Any]:
    """Return the variables of a function's closure."""
    names = getattr(getattr(func, "__code__", None), "co_freevars", ())
    found: dict[str, Any] = {}
    for name, cell in zip(names, getattr(func, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # an empty cell
            continue
    return found
