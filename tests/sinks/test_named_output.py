"""An output that a function of the user writes takes part in the life of a batch as any other. What is written stands in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from kstream_kafka import KafkaUtils

from kstream.batch import Json, OutputFigures
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.checkpoint.outcomes import read_completion
from kstream.dstream import ForEachDStream
from kstream.errors import ConfigurationError, OutputVanishedError
from kstream.output import Output, OutputBatch, Writer
from kstream.sinks.named_output import FunctionOutput, NamedOutput, checked_names, writable_output
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, LogInput, World
from tests.kstream_kafka.stream import BROKERS
from tests.scheduler.retries import fails, passes

FIRST, SECOND = START + INTERVAL, START + 2 * INTERVAL
RETRIES = "spark.streaming.kstream.batch.retries"


class Rows(Output):
    """Notes its calls in the order in which they come."""

    def __init__(self, missing: Sequence[int] | None = None) -> None:
        self.name = "rows"
        self.missing = missing
        self.calls: list[Any] = []
        self.is_away = False

    def restore(self, writer: Writer, stored: Json) -> None:
        self.calls.append(("restore", stored))

    def prepare(self, batch: OutputBatch, rdd: Any) -> Sequence[int] | None:
        self.calls.append(("prepare", batch.time.milliseconds, batch.is_first_try))
        return self.missing

    def run(self, batch: OutputBatch, rdd: Any, partitions: Sequence[int] | None) -> None:
        self.calls.append(("run", batch.time.milliseconds, partitions))
        if self.is_away:
            raise OSError("away")

    def outcome(self, time: Time) -> Json:
        return {"at": time.milliseconds}

    def committed(self, time: Time) -> None:
        self.calls.append(("committed", time.milliseconds))

    def stop(self) -> None:
        self.calls.append("stop")


class Function:
    """The function of the user. `does` is what it does with a batch; by default it writes the output `rows`."""

    def __init__(self, rows: Rows | None = None) -> None:
        self.rows = rows or Rows()
        self.made_of: Any = "parameters"
        self.does: Callable[[int], object] = self.write

    def __call__(self, time: Time, _rdd: Any) -> object:
        return self.does(time.milliseconds)

    def write(self, _ms: int = 0, name: str = "rows") -> None:
        given: Any = None
        writable_output("write", name).write("write", lambda: given, lambda: self.rows, self.made_of)


class Lossless(LogInput):
    """A batch of it succeeds only with all of its records."""

    @property
    def tasks_report(self) -> bool:
        return False


def driver_of(world: World, function: Function, *names: str, conf: dict[str, str] | None = None, reports: bool = False) -> Driver:
    def build(host: FakeHost, driver: Driver) -> None:
        if not reports:
            host.graph._inputs.clear()
            driver.input = Lossless(host, driver.world.log)
        host.graph.add_output_stream(ForEachDStream(driver.input, FunctionOutput("foreachBatch", function, names or ["rows"])))

    return Driver(world, conf, build=build)


def test_an_output_of_a_function_is_restored_prepared_run_asked_and_told_as_any_other() -> None:
    world, function = World(), Function(Rows(missing=[1]))
    driver = driver_of(world, function).start()
    driver.tick(2)
    driver.stop()
    assert function.rows.calls[:4] == [("restore", None), ("prepare", FIRST, True), ("run", FIRST, [1]), ("committed", FIRST)]
    assert function.rows.calls[-1] == "stop"
    assert read_log(world.store).plans[Time(FIRST)].outputs == ("rows",)
    completion = read_completion(world.store, Time(FIRST), 1)
    assert completion is not None and completion.outputs == {"rows": {"at": FIRST}}
    again = Function()
    later = driver_of(world, again).start()
    later.tick(1)
    later.stop()
    assert again.rows.calls[0] == ("restore", {"at": FIRST})


def test_all_partitions_are_computed_if_an_input_reports_on_all_records() -> None:
    function = Function(Rows(missing=[1]))
    driver = driver_of(World(), function, reports=True).start()
    driver.tick(1)
    assert ("run", FIRST, None) in function.rows.calls
    driver.stop()


def test_a_batch_that_fails_is_prepared_again_and_is_no_first_try() -> None:
    function = Function()
    driver = driver_of(World(), function, conf={RETRIES: "5"}).start()
    function.rows.is_away = True
    fails(driver)
    function.rows.is_away = False
    passes(driver, 1000)
    driver.stop()
    assert [call for call in function.rows.calls if call[0] == "prepare"][:2] == [("prepare", FIRST, True), ("prepare", FIRST, False)]


def error_of_a_batch(driver: Driver, kind: type[Exception]) -> str:
    """Run a batch that fails, and stop the driver. Return the words of the error."""
    driver.tick_only(1)
    driver.wait_error(kind)
    driver.stop()
    return str(driver.errors[-1][1])


def test_an_error_of_a_write_fails_the_batch_though_the_function_catches_it() -> None:
    function = Function()
    driver = driver_of(World(), function).start()

    def catches(_ms: int) -> None:
        with suppress(OSError):
            function.write()

    function.does, function.rows.is_away = catches, True
    assert error_of_a_batch(driver, OSError) == "away"


def test_an_output_that_is_not_written_keeps_what_is_stored_of_it() -> None:
    world, function = World(), Function()
    driver = driver_of(world, function).start()
    driver.tick(1)
    driver.stop()
    idle = Function()
    idle.does = lambda _ms: None
    later = driver_of(world, idle).start()
    later.tick(1)
    later.stop()
    completion = read_completion(world.store, Time(SECOND), 2)
    assert completion is not None and completion.outputs == {"rows": {"at": FIRST}} and idle.rows.calls == []


def test_what_a_write_has_measured_is_told_with_its_batch_alone() -> None:
    class Measuring(Rows):
        def run(self, batch: OutputBatch, rdd: Any, partitions: Sequence[int] | None) -> OutputFigures:
            return OutputFigures(transactions=2)

    function = Function(Measuring())
    driver = driver_of(World(), function).start()
    driver.tick(1)
    function.does = lambda _ms: None
    driver.tick(1)
    driver.stop()
    ended = [event.info.outputs[0].figures for event in driver.listener.named("onBatchCompleted")]
    assert ended == [OutputFigures(transactions=2), OutputFigures()]


def test_an_output_is_written_once_in_a_batch() -> None:
    function = Function()
    driver = driver_of(World(), function).start()

    def twice(_ms: int) -> None:
        function.write()
        function.write()

    function.does = twice
    words = "output 'rows' is written twice in one batch. Give each frame a name of its own"
    assert words in error_of_a_batch(driver, ValueError)


def test_what_is_refused_fails_the_batch_though_the_function_catches_it() -> None:
    function = Function()
    driver = driver_of(World(), function).start()

    def twice(_ms: int) -> None:
        function.write()
        with suppress(ValueError):
            function.write()

    function.does = twice
    assert "output 'rows' is written twice in one batch" in error_of_a_batch(driver, ValueError)


def test_records_that_cannot_be_planned_fail_the_batch_though_the_function_catches_it() -> None:
    function = Function()
    driver = driver_of(World(), function).start()

    def plans() -> Any:
        raise OSError("no plan")

    def catches(_ms: int) -> None:
        with suppress(OSError):
            writable_output("write", "rows").write("write", plans, lambda: function.rows, "parameters")

    function.does = catches
    assert error_of_a_batch(driver, OSError) == "no plan"


def test_a_function_writes_in_any_of_its_threads_and_nobody_writes_when_it_has_ended() -> None:
    function, errors = Function(), list[Exception]()
    driver = driver_of(World(), function).start()

    def in_a_thread(_ms: int) -> None:
        thread = threading.Thread(target=function.write)
        thread.start()
        thread.join()

    function.does = in_a_thread
    driver.tick(1)
    assert ("run", FIRST, None) in function.rows.calls
    try:
        function.write()
    except ValueError as e:
        errors.append(e)
    driver.stop()
    assert "write: no function of foreachBatch runs that may write output 'rows'" in str(errors[0])
    assert "stream.foreachBatch(func, outputs=['rows'])" in str(errors[0])


def test_a_write_that_still_runs_when_its_function_returns_fails_the_batch_and_each_try_until_it_ends() -> None:
    outputs = FunctionOutput("foreachBatch", lambda _time, _rdd: does(), ["others", "rows"])
    for part in outputs.parts():
        part.restore(Writer("job", 1, "", lambda _: None, lambda _time, _nonce: False), None)
    goes_on, begun, rows, rdd = threading.Event(), threading.Event(), Rows(), cast("Any", None)

    def plans() -> Any:
        begun.set()
        goes_on.wait(60)

    def write(name: str = "rows") -> None:
        writable_output("write", name).write("write", plans, lambda: rows, "parameters")

    def not_joined() -> None:
        thread.start()
        begun.wait(60)

    thread, does = threading.Thread(target=write), cast("Callable[[], object]", not_joined)
    batch = OutputBatch(Time(FIRST), "nonce", True)
    words = r"^the function of foreachBatch has returned while its write of output 'rows' still runs\. Join the thread of the write$"
    for _ in range(2):
        with pytest.raises(RuntimeError, match=words):
            outputs.run(batch, rdd, ())
        for name in ("others", "rows"):
            with pytest.raises(ValueError, match="no function of foreachBatch runs"):
                write(name)
        does = begun.set
    goes_on.set()
    thread.join()
    does = write
    outputs.run(batch, rdd, ())
    assert len([call for call in rows.calls if call[0] == "run"]) == 2


def test_what_writes_is_made_anew_of_other_parameters_and_goes_on_from_what_is_stored() -> None:
    function = Function()
    driver = driver_of(World(), function).start()
    driver.tick(1)
    before, function.rows, function.made_of = function.rows, Rows(), "a new password"
    driver.tick(1)
    driver.stop()
    assert before.calls[-1] == "stop" and function.rows.calls[0] == ("restore", {"at": SECOND})


def test_batches_of_a_function_with_outputs_run_in_order_and_a_start_without_such_an_output_is_refused() -> None:
    world, function = World(), Function()
    driver = driver_of(world, function, "rows", "others", conf={RETRIES: "5", "spark.streaming.concurrentJobs": "3"}).start()
    function.rows.is_away = True
    fails(driver)
    driver.tick_only(1)
    driver.settle()
    assert {call[1] for call in function.rows.calls if call[0] == "prepare"} == {FIRST}
    driver.kill()
    with pytest.raises(OutputVanishedError, match="outputs that this job lacks: others"):
        driver_of(world, Function()).start()


def test_an_output_needs_a_checkpoint_directory_and_a_name_that_no_other_one_has() -> None:
    writer = Writer("", 1, "", lambda _: None, lambda _time, _nonce: False)
    with pytest.raises(ConfigurationError, match="output rows needs a checkpoint directory"):
        NamedOutput("rows").restore(writer, None)
    with pytest.raises(ConfigurationError, match="two outputs are named 'rows'"):
        driver_of(World(), Function(), "rows", "rows").start()


def test_a_function_that_has_not_done_its_work_fails_its_batch() -> None:
    function = Function()
    driver = driver_of(World(), function).start()
    function.does = lambda _ms: (n for n in [1])
    assert "foreachBatch: the function returned a generator" in error_of_a_batch(driver, TypeError)


def test_foreachBatch_has_outputs_only_if_they_are_named() -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    stream.foreachBatch(lambda df, batch_id: None)
    assert host.graph.outputs() == []
    stream.foreachBatch(lambda df, batch_id: None, outputs=["totals", "alerts"])
    assert host.graph.output_names() == ("totals", "alerts") and host.graph.keeps_layout
    with pytest.raises(TypeError, match=r"^foreachBatch: outputs must be a list of names, as \['totals'\], it is 'totals'$"):
        stream.foreachBatch(lambda df, batch_id: None, outputs="totals")
    for name in ("", "a,b"):
        with pytest.raises(ValueError, match=f"^foreachBatch: outputs has '{name}'; give some text without commas"):
            checked_names("foreachBatch", [name])
