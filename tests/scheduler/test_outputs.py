"""An output that takes part in the life of a batch: what it is asked and told, when, and what the checkpoint stores of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kstream import crash_point
from kstream.batch import Json, OutputFigures
from kstream.batch_time import Time
from kstream.checkpoint import names, read_log
from kstream.checkpoint.offline import forget_batch
from kstream.checkpoint.outcomes import failure_names, read_completion, read_failure
from kstream.dstream import ForEachDStream, TransformedDStream
from kstream.dstream.node import DStreamNode
from kstream.errors import ConfigurationError, OutputVanishedError, StorageError
from kstream.output import Output, OutputBatch, Writer
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, LogInput, World, faulty_world
from tests.scheduler.retries import fails, passes
from tests.stores import no_completions, works

FIRST, SECOND = START + INTERVAL, START + 2 * INTERVAL
RETRIES = "spark.streaming.kstream.batch.retries"
ALLOW = "spark.streaming.kstream.recovery.allow"


class Recording(Output):
    """Notes its calls in the order in which they come."""

    def __init__(self, name: str = "rows", missing: Sequence[int] | None = None) -> None:
        self.name = name
        self.missing = missing
        self.calls: list[Any] = []
        self.writer: Writer | None = None
        self.refuses = False
        self.cannot_tell = False

    def restore(self, writer: Writer, stored: Json) -> None:
        self.writer = writer
        self.calls.append(("restore", stored))

    def prepare(self, batch: OutputBatch, rdd: Any) -> Sequence[int] | None:
        self.calls.append(("prepare", batch))
        return self.missing

    def run(self, batch: OutputBatch, rdd: Any, partitions: Sequence[int] | None) -> None:
        self.calls.append(("run", batch.time.milliseconds, partitions))
        if self.refuses:
            raise OSError("away")

    def outcome(self, time: Time) -> Json:
        if self.cannot_tell:
            raise OSError("not known")
        self.calls.append(("outcome", time.milliseconds))
        return {"at": time.milliseconds}

    def committed(self, time: Time) -> None:
        self.calls.append(("committed", time.milliseconds))

    def named(self, *kinds: str) -> list[Any]:
        return [call for call in self.calls if call[0] in kinds]


class Lossless(LogInput):
    """A batch of it succeeds only with all of its records."""

    @property
    def tasks_report(self) -> bool:
        return False


def driver_of(world: World, *outputs: Output, conf: dict[str, str] | None = None, lossless: bool = True, **options: Any) -> Driver:
    def build(host: FakeHost, driver: Driver) -> None:
        if lossless:
            host.graph._inputs.clear()
            driver.input = Lossless(host, driver.world.log)
        for output in outputs:
            host.graph.add_output_stream(ForEachDStream(driver.input, output))
        if not outputs:
            driver.output(driver.input)

    return Driver(world, conf, build=build, **options)


def test_an_output_is_prepared_run_asked_and_told_in_this_order() -> None:
    world, output = World(), Recording()
    driver = driver_of(world, output).start()
    driver.tick(2)
    driver.stop()
    batch = OutputBatch(Time(FIRST), read_log(world.store).plans[Time(FIRST)].nonce, is_first_try=True)
    assert output.calls[:5] == [
        ("restore", None), ("prepare", batch), ("run", FIRST, None), ("outcome", FIRST), ("committed", FIRST),
    ]  # fmt: skip


def test_the_completion_stores_what_an_output_says_and_the_next_start_gives_the_newest_back() -> None:
    world, output = World(), Recording()
    driver = driver_of(world, output).start()
    driver.tick(1)
    driver.tick(1)
    driver.stop()
    completion = read_completion(world.store, Time(SECOND), 1)
    assert completion is not None and completion.outputs == {"rows": {"at": SECOND}}
    again = Recording()
    driver_of(world, again).start().stop()
    assert again.named("restore") == [("restore", {"at": SECOND})]


def test_listeners_hear_what_an_output_has_measured_with_its_end_and_with_that_of_the_batch() -> None:
    measured = OutputFigures(transactions=2, commit_p99_ms=7)

    class Measuring(Recording):
        def run(self, batch: OutputBatch, rdd: Any, partitions: Sequence[int] | None) -> OutputFigures:
            return measured

    driver = driver_of(World(), Recording(), Measuring("others")).start()
    driver.tick(1)
    driver.stop()
    [ended] = driver.listener.named("onBatchCompleted")
    operations = {event.info.output_op_id: event.info for event in driver.listener.named("onOutputOperationCompleted")}
    expected = {0: OutputFigures(), 1: measured}
    assert {number: info.figures for number, info in ended.info.outputs.items()} == expected
    assert {number: info.figures for number, info in operations.items()} == expected


def test_writers_of_one_checkpoint_have_one_job_and_a_nonce_and_an_epoch_each() -> None:
    world, outputs = World(), [Recording(), Recording()]
    for output in outputs:
        driver = driver_of(world, output).start()
        driver.tick(1)
        driver.stop()
    first, second = (output.writer for output in outputs)
    assert first is not None and second is not None
    assert first.job == second.job != "" and first.nonce != second.nonce and (first.epoch, second.epoch) == (1, 2)
    nonce = read_log(world.store).plans[Time(FIRST)].nonce
    assert second.knows(Time(FIRST), nonce) and not second.knows(Time(FIRST), "another") and not second.knows(Time(SECOND), nonce)
    assert [second.nonce_of(epoch) for epoch in (1, 2, 3)] == [first.nonce, second.nonce, None]


def test_an_output_is_told_of_the_batches_whose_plans_were_set_aside() -> None:
    world, outputs = World(), [Recording(), Recording()]
    driver = driver_of(world, outputs[0]).start()
    for _ in range(3):
        driver.tick(1)
    driver.stop()
    assert forget_batch(world.store, Time(SECOND))
    driver_of(world, outputs[1]).start().stop()
    told = [set[Time]() if output.writer is None else output.writer.given_up for output in outputs]
    assert told == [frozenset(), frozenset({Time(SECOND)})]


def test_a_try_after_a_failed_one_is_no_first_try() -> None:
    world, output = World(), Recording()
    driver = driver_of(world, output, conf={RETRIES: "5"}).start()
    output.refuses = True
    fails(driver)
    output.refuses = False
    passes(driver, INTERVAL)
    assert [batch.is_first_try for _, batch in output.named("prepare") if batch.time == Time(FIRST)] == [True, False]


def test_a_batch_of_an_earlier_driver_is_no_first_try_and_has_the_nonce_of_its_plan() -> None:
    world, output = World(), Recording()
    driver_of(world, output).start().die_at(crash_point.JOB_DONE, 1)
    again = Recording()
    driver_of(world, again).start().stop()
    nonce = read_log(world.store).plans[Time(FIRST)].nonce
    assert again.named("prepare")[0] == ("prepare", OutputBatch(Time(FIRST), nonce, is_first_try=False))


@pytest.mark.parametrize(("lossless", "computed"), [(True, [1, 2]), (False, None)])
def test_partitions_that_are_written_are_left_out_unless_an_input_reports_on_all_records(lossless: bool, computed: object) -> None:
    world, output = World(), Recording(missing=[1, 2])
    driver = driver_of(world, output, lossless=lossless).start()
    driver.tick(1)
    driver.stop()
    assert output.named("run")[0] == ("run", FIRST, computed)


def test_an_output_hears_of_no_completion_that_the_store_has_refused_until_it_is_stored() -> None:
    (world, faulty), output = faulty_world(), Recording()
    driver = driver_of(world, output).start()
    faulty.fault = no_completions
    driver.tick(1)
    driver.wait_error(StorageError)
    assert output.named("committed") == []
    faulty.fault = works
    driver.tick(1)
    driver.settle()
    assert output.named("committed") == [("committed", FIRST), ("committed", SECOND)]
    assert output.named("outcome") == [("outcome", FIRST), ("outcome", SECOND)], "it is asked once"


def test_an_output_that_cannot_tell_its_outcome_is_asked_again() -> None:
    world, output = World(), Recording()
    driver = driver_of(world, output).start()
    output.cannot_tell = True
    driver.tick(1)
    driver.wait_error(OSError)
    output.cannot_tell = False
    driver.tick(1)
    driver.settle()
    driver.stop()
    assert read_log(world.store).pending == []
    assert output.named("committed") == [("committed", FIRST), ("committed", SECOND)]


def test_an_output_that_is_gone_while_a_batch_waits_for_it_is_refused_by_name() -> None:
    world = World()
    driver_of(world, Recording("rows")).start().die_at(crash_point.JOB_DONE, 1)
    with pytest.raises(OutputVanishedError, match=r"outputs that this job lacks: rows\..*--allow output:rows") as caught:
        driver_of(world, Recording("lines")).start()
    assert caught.value.outputs == ["rows"]
    driver_of(world, Recording("lines"), conf={ALLOW: "output:rows"}).start().stop()
    assert read_log(world.store).pending == []


def test_an_output_may_go_when_no_batch_waits_for_it() -> None:
    world = World()
    driver = driver_of(world, Recording("rows")).start()
    driver.tick(1)
    driver.stop()
    driver_of(world).start().stop()


def test_two_outputs_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two outputs are named 'rows'"):
        driver_of(World(), Recording(), Recording()).start()


def test_an_ordered_output_holds_whatever_the_setting() -> None:
    world, output = World(), Recording()
    output.is_ordered = True
    driver = driver_of(world, output, conf={RETRIES: "9", "spark.streaming.concurrentJobs": "3"}).start()
    output.refuses = True
    fails(driver)
    driver.tick_only(1)
    driver.settle()
    assert {batch.time for _, batch in output.named("prepare")} == {Time(FIRST)}


def test_a_failed_batch_names_the_outputs_that_had_succeeded_and_what_they_write_exactly_once() -> None:
    world, written, plain, refusing = World(), Recording("sums"), Recording("rows"), Recording("away")
    written.is_ordered, refusing.refuses = True, True
    driver = driver_of(world, written, plain, refusing).start()
    driver.tick_only(1)
    driver.wait_error(OSError)
    ((key, (name,)),) = failure_names(world.store).items()
    failure = read_failure(world.store, name)
    assert key[0] == Time(FIRST) and failure is not None
    assert [(one.number, one.outputs) for one in failure.succeeded] == [(0, ("sums",)), (1, ())]
    assert [str(one).partition(" at ")[0] for one in failure.succeeded] == ["output 'sums', foreachRDD", "output operation 1, foreachRDD"]


def test_an_input_without_a_word_on_it_reports_on_all_records() -> None:
    assert LogInput(FakeHost({}, INTERVAL), []).tasks_report


def test_a_damaged_completion_is_told_and_an_older_one_restores_the_output(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    driver = driver_of(world, Recording()).start()
    for _ in range(2):
        driver.tick(1)
    driver.stop()
    name = names.done(Time(SECOND), 1)
    world.store.delete(name)
    world.store.create(name, b"{}")
    again = Recording()
    driver_of(world, again).start().stop()
    assert again.named("restore") == [("restore", {"at": FIRST})]
    assert "so outputs are restored from an older one" in caplog.text


def test_an_ordered_output_is_refused_where_batches_may_be_given_up() -> None:
    output, world = Recording(), World()
    output.is_ordered = True
    with pytest.raises(ConfigurationError, match="writes each batch once and in order"):
        driver_of(world, output, conf={"spark.streaming.kstream.maxBatchFailures": "3"}).start()
    assert not world.store.list(""), "so a driver that runs is not fenced"


# -- the division of a batch


class InPartitions(TransformedDStream):
    """Notes into how many partitions a shuffle would divide each batch."""

    def __init__(self, parent: DStreamNode, seen: dict[int, int]) -> None:
        def noted(time: Time, rdd: Any) -> Any:
            seen[time.milliseconds] = self.default_partitions(None, time)
            return rdd

        super().__init__([parent], noted)


def divided(world: World, output: Output | None, parallelism: int, seen: dict[int, int], **options: Any) -> Driver:
    def build(host: FakeHost, driver: Driver) -> None:
        host.sparkContext.defaultParallelism = parallelism
        stream = InPartitions(driver.input, seen)
        if output is None:
            driver.output(stream)
        else:
            host.graph.add_output_stream(ForEachDStream(stream, output))

    return Driver(world, build=build, **options)


@pytest.mark.parametrize(("keeps", "of_the_pending_batch"), [(True, 2), (False, 8)])
def test_a_pending_batch_is_divided_as_the_driver_did_that_planned_it_if_an_output_needs_that(
    keeps: bool, of_the_pending_batch: int
) -> None:
    world, seen, outputs = World(), dict[int, int](), [Recording(), Recording()]
    for output in outputs:
        output.keeps_layout = keeps
    divided(world, outputs[0], 2, seen).start().die_at(crash_point.JOB_DONE, 1)
    assert seen == {FIRST: 2}
    assert read_log(world.store).plans[Time(FIRST)].parallelism == (2 if keeps else None)
    again = divided(world, outputs[1], 8, seen).start()
    time = again.tick(1)
    again.stop()
    assert seen[FIRST] == of_the_pending_batch and seen[time] == 8
