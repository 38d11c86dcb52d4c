"""kstream does what pyspark.streaming does: programs run under both, only their import lines changed, and what they saw is compared.

What differs on purpose is in one table, DIFFERENCES, and is asserted to differ in just that way. Anything else that differs is a defect.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.twins import PROGRAMS, Twins, run_twins, text_for

pytestmark = pytest.mark.timeout(1800)
START = 1_700_000_000

OUTPUTS: dict[str, dict[int, list[str]]] = {
    "operators": {
        3: [
            "map", "flatMap", "filter", "mapPartitions", "mapPartitionsWithIndex", "glom", "repartition", "reduce", "count", "countByValue",
            "transform", "transform with time", "cache", "persist", "union", "mapValues", "flatMapValues", "reduceByKey",
            "mapValues keeps partitions", "groupByKey numPartitions", "combineByKey",
            "partitionBy", "partitionBy partitionFunc", "cogroup", "join", "leftOuterJoin", "rightOuterJoin", "fullOuterJoin",
            "union of other types", "ssc.union", "union placed alike", "ssc.transform", "transformWith", "transformWith time",
            "queue of RDDs", "queue of lists", "queue all at once", "queue with default", "queue with default list",
        ]
    },
    "windows": {
        7: [
            "window", "window of shuffled", "reduceByWindow", "reduceByKeyAndWindow", "reduceByWindow inverse", "countByWindow",
            "countByValueAndWindow", "reduceByKeyAndWindow inverse", "reduceByKeyAndWindow filter", "updateStateByKey",
            "updateStateByKey drops", "updateStateByKey initialRDD", "state of state", "checkpoint",
        ],
        3: [
            "window slides", "window of window", "count of window", "reduceByKeyAndWindow slides", "groupByKeyAndWindow", "window to slice",
        ],
    },
    "failures": {
        4: ["before the failing output", "after the failing output"], 3: ["the failing output", "beside an output function that fails"],
        2: ["beside a transform that fails", "a transform that fails", "beside a listener that raises"],
    },
}  # fmt: skip
"""Program → number of batches → outputs that have so many."""


def in_each(first: int, last: int, records: list[str]) -> dict[int, list[str]]:
    """The same records in every batch from `first` to `last`."""
    return dict.fromkeys(range(first, last + 1), records)


DIFFERENCES: dict[str, tuple[str, Any, Any]] = {
    "inverse over a short window": (
        "pyspark computes windows of less than five slides anew, whatever the inverse; here, as in Spark's Scala API (WO7), a key stays "
        "until filterFunc lets it go, however long the window is",
        {3: ["('b', 5)"], **in_each(4, 7, [])}, {3: ["('a', 0)", "('b', 5)"], **in_each(4, 7, ["('a', 0)", "('b', 0)"])},
    ),
    "countByWindow over a short window": (
        "the same: of an empty window pyspark gives 0 where it is long and nothing where it is short, kstream always 0 (WO12)",
        in_each(4, 7, []), in_each(4, 7, ["0"]),
    ),
    "groupByKeyAndWindow over a long window": (
        "there is no inverse form here: keys go with their last value (WO11), pyspark keeps empty groups for ever",
        {6: ["('a', ['*'])", "('b', ['*', 5])"], 7: ["('a', ['*'])", "('b', ['*'])"]}, {6: ["('b', ['*', 5])"], 7: []},
    ),
    "filter without inverse": ("pyspark passes over filterFunc where there is no invFunc", {2: ["('b', 5)"]}, {2: []}),
    "count of an RDD without partitions": (
        "a batch has one count, 0 if it is empty (BO7); pyspark gives none for an RDD without partitions: a file stream's without a file",
        in_each(1, 4, []), in_each(1, 4, ["0"]),
    ),
    "slides over a queue": (
        "inputs are planned at every batch time, also those that a window skips; Spark takes from the queue only when it is asked to",
        {2: ["1"], 4: ["2"]}, {2: ["2"], 4: ["4"]},
    ),
    "a queue that grows": ("what is appended to the list later is seen, as the Scala API does", {2: []}, {2: ["2"]}),
    "an empty queue": ("a queue may be empty at first; pyspark fails with an IndexError", None, in_each(1, 4, [])),
    "queue of nothing": ("the same", "IndexError", "None"),
    "an empty queue with a default": ("the default is there from the first batch; pyspark's first is empty", {1: []}, {1: ["9"]}),
    "calls of a shared transform": (
        "the function of a transform that two streams are made of runs once a batch, as in the Scala API; pyspark runs it for each", 8, 4,
    ),
    "an output function with a default argument": (
        "`lambda rdd, name=name: …` wants the RDD; pyspark counts two arguments and calls it with time and RDD", [False] * 4, [True] * 4,
    ),
    "a partial as output": ("anything that can be called; pyspark reads its __code__", "AttributeError", "None"),
    "await after an output function returned a list": ("what an output function returns is nobody's business", "Py4JJavaError", "False"),
    "slice of half a second": ("the milliseconds of a datetime count; pyspark drops them", "[[2]]", "[[3]]"),
    "await after a transform returned None": (
        "the function of a transform must return an RDD (BO12); pyspark leaves the batch out without a word", "False", "NoRDDError",
    ),
    "a context without a duration": ("an error with words in place of an assertion", "AssertionError", "ConfigurationError"),
    "a transform of three": ("the same", "AssertionError", "TypeError"),
    "a transformWith of one": ("the same", "AssertionError", "TypeError"),
    "a join of other slides": ("refused (WO15); pyspark joins what is not there as if it were empty", "None", "ValueError"),
    "joined slides": ("the same", {1: [], 2: ["('b', (5, 5))"], 3: [], 4: [], 5: [], 6: [], 7: []}, None),
    "a window of nothing": ("refused; in pyspark it is always empty", "True", "ValueError"),
    "a checkpoint interval of half a slide": ("refused at the call, with its line; by pyspark at the start", "True", "ConfigurationError"),
    "a checkpoint interval of one and a half slides": ("the same", "True", "ConfigurationError"),
}  # fmt: skip
"""Name in the program `differences` → why, what pyspark sees, what kstream sees: the batches that differ (second → records), what is
returned, or the class of the error."""
SAME_BATCHES = {"a transform that returns None"}
"""Of that program, what is the same all the same: the batches that had an RDD."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Twins]:
    # "errors" first: the checkpoint directory that one context has set is, in Spark, set for all contexts that come after it.
    programs = ["errors", "operators", "windows", "failures", "listeners", "differences"]
    return run_twins(tmp_path_factory.mktemp("twins"), *programs)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return run_twins(tmp_path_factory.mktemp("restart"), "restart", lives=2, parallelism=1)["restart"]


# -- what is compared is all there is


def test_a_program_differs_from_pysparks_in_its_import_lines_only() -> None:
    for path in PROGRAMS.glob("*.py"):
        source = path.read_text()
        changed = [(a, b) for a, b in zip(source.splitlines(), text_for("kstream", source).splitlines(), strict=True) if a != b]
        assert len(changed) == 1 and changed[0][0].replace("pyspark.streaming", "kstream") == changed[0][1], path
        assert changed[0][0].startswith("from pyspark.streaming import ")


def public_methods(owner: str, module: str) -> Iterator[str]:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / "streaming" / f"{module}.py").read_text())
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    yield from sorted({node.name for node in cls.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")})


ELSEWHERE = {
    "socketTextStream": "needs the machine's clock: tests/dstream/test_receiver_stream.py, and the examples",
    "binaryRecordsStream": "tests/dstream/test_file_stream.py; which files are taken is the same for text files",
    "onReceiverError": "receivers: tests/dstream/test_receiver_stream.py", "onReceiverStopped": "receivers, too",
}  # fmt: skip


@pytest.mark.parametrize(("owner", "module"), [("DStream", "dstream"), ("StreamingContext", "context"), ("StreamingListener", "listener")])
def test_every_method_of_pyspark_is_used_by_some_program(owner: str, module: str) -> None:
    texts = "\n".join(path.read_text() for path in PROGRAMS.glob("*.py"))
    unused = [name for name in public_methods(owner, module) if not re.search(rf"(\.|def ){name}\b", texts)]
    assert [name for name in unused if name not in ELSEWHERE] == []


def test_every_output_is_compared(seen: dict[str, Twins]) -> None:
    for program, counts in OUTPUTS.items():
        assert seen[program].outputs() == {output for outputs in counts.values() for output in outputs}
    differing = seen["differences"]
    assert differing.outputs() | differing.facts() == {*DIFFERENCES, *SAME_BATCHES}


# -- the same


@pytest.mark.parametrize(
    ("program", "output", "count"),
    [(program, output, count) for program, counts in OUTPUTS.items() for count, outputs in counts.items() for output in outputs],
)
def test_an_operator_gives_the_same_batches(seen: dict[str, Twins], program: str, output: str, count: int) -> None:
    """BO1 … BO18, WO1 … WO13, IS8, SC13: records, how many partitions, and where what is placed by key lies."""
    spark, here = seen[program].pyspark.of(output), seen[program].kstream.of(output)
    assert here == spark
    assert len(here) == count


def shown(twins: Twins, name: str) -> tuple[Any, Any]:
    return twins.pyspark.facts[name], twins.kstream.facts[name]


def test_output_is_printed_saved_and_called_in_the_same_order(seen: dict[str, Twins]) -> None:
    for name in ("pprint", "saveAsTextFiles", "order of calls"):
        spark, here = shown(seen["operators"], name)
        assert here == spark and len(here) > 5, name


ATTEMPTS = {"operators": 0, "windows": 25, "errors": 60, "failures": 9}
"""Program → at least so many calls are compared."""


def attempts(twins: Twins) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What calls returned or raised."""
    both = {name: shown(twins, name) for name in twins.facts()}
    return {name: (a, b) for name, (a, b) in both.items() if isinstance(a, dict) and "says" in a}


def differs(spark: dict[str, Any], here: dict[str, Any]) -> str:
    """Why two ends of one call are not the same, or nothing.

    An error of the JVM's is a Py4JJavaError in pyspark, and a Python error here, in which the same words are; one of Python's is of the
    same class here.
    """
    if "returned" in spark or "returned" in here:
        return "" if spark == here else f"returned {here} in place of {spark}"
    if spark["error"][0] != "Py4JJavaError" and spark["error"][0] not in here["error"]:
        return f"{here['error'][0]} in place of {spark['error'][0]}"
    silent = [end["message"] for end in (spark, here) if spark["says"].lower() not in end["message"].lower()]
    return f"{spark['says']!r} is not in {silent}" if silent else ""


@pytest.mark.parametrize("program", list(ATTEMPTS))
def test_calls_return_and_raise_the_same(seen: dict[str, Twins], program: str) -> None:
    """WO14, WO15, BO19, SC1, SC4, SC6, SC7, SC12 … SC18, TD1"""
    found = attempts(seen[program])
    assert len(found) >= ATTEMPTS[program]
    assert {name: why for name, (spark, here) in found.items() if (why := differs(spark, here))} == {}


def test_a_failed_output_is_told_and_no_other(seen: dict[str, Twins]) -> None:
    """Spark behaviour SL6."""
    spark, here = shown(seen["failures"], "endings")
    assert here == spark and [batch[1]["1 is fine"] for batch in here] == [True, False, True, True]


def test_listeners_hear_the_same_events_with_the_same_figures(seen: dict[str, Twins]) -> None:
    """SL1, SL2, SL4: kinds, order, batch times, delays that are not known yet, records, inputs and outputs."""
    for name in ("kinds", "heard"):
        spark, here = shown(seen["listeners"], name)
        assert here == spark and len(here) == 1 + 3 * 7


# -- not the same, on purpose


def other_batches(twins: Twins, name: str) -> tuple[Any, Any]:
    """The batches in which the sides differ: second → records; None for a side that has none at all."""
    spark, here = (side.of(name) if name in side.batches else None for side in (twins.pyspark, twins.kstream))
    times = sorted(time for time in {*(spark or {}), *(here or {})} if (spark or {}).get(time) != (here or {}).get(time))
    spark, here = (None if side is None else {time // 1000 - START: side[time][1] for time in times} for side in (spark, here))
    return spark, here


def end_of(fact: Any) -> Any:
    """What a call returned, the class of its error, or the fact itself."""
    if isinstance(fact, dict) and "says" in fact:
        return fact["returned"] if "returned" in fact else fact["error"][0]
    return fact


@pytest.mark.parametrize("name", list(DIFFERENCES))
def test_what_differs_on_purpose_differs_in_this_way(seen: dict[str, Twins], name: str) -> None:
    """Spark behaviours BO7, BO12, BO18, WO7, WO11, WO12, WO15, IS8 and CP15."""
    twins, (_why, spark, here) = seen["differences"], DIFFERENCES[name]
    if name in twins.outputs():
        assert other_batches(twins, name) == (spark, here)
    else:
        assert tuple(end_of(fact) for fact in shown(twins, name)) == (spark, here)


def test_a_batch_without_an_rdd_has_no_output_on_either_side(seen: dict[str, Twins]) -> None:
    """Spark behaviour BO12."""
    for name in SAME_BATCHES:
        spark, here = seen["differences"].pyspark.of(name), seen["differences"].kstream.of(name)
        assert here == spark and [time // 1000 - START for time in here] == [2]


# -- after a restart

RESTARTED = {
    "pairs": 11, "state": 11, "state with a beginning": 11, "window": 11, "sums": 5, "sums by inverse": 11, "count over a window": 11,
}  # fmt: skip
"""Output → its batches in both lives together."""


@pytest.mark.parametrize("output", list(RESTARTED))
def test_another_process_goes_on_from_the_checkpoint_with_the_same_states_and_windows(restarted: Twins, output: str) -> None:
    """CP5, CP8, CP12, SC14: five batches, two that were missed, four more; what pyspark runs again has come out the same both times."""
    spark, here = restarted.pyspark.of(output), restarted.kstream.of(output)
    assert here == spark and len(here) == RESTARTED[output]


def test_setup_is_not_called_again(restarted: Twins) -> None:
    """Spark behaviour SC14."""
    assert restarted.outputs() == set(RESTARTED)
    assert restarted.kstream.facts == {"setup in life 1": True, "goes on in life 1": True, "goes on in life 2": True}
    assert restarted.pyspark.facts == restarted.kstream.facts


def test_a_batch_that_is_complete_runs_once_and_in_pyspark_again_after_a_restart(restarted: Twins) -> None:
    """CP5, CP14: the one difference of a restart, by design: a completed batch is known to be complete."""
    sides = restarted.pyspark, restarted.kstream
    spark, here = ({time // 1000 - START: len(found) for time, found in side.batches["pairs"].items()} for side in sides)
    assert here == dict.fromkeys(range(1, 12), 1)
    assert spark == {**here, 5: 2}
