"""A stream that carries state: what it goes on from, what it keeps, and how its lineage stays short. No JVM."""

from __future__ import annotations

from typing import Any

import pytest

from kstream import Duration
from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.dstream import ForEachDStream, WindowedDStream
from kstream.errors import ConfigurationError, NoRDDError, StorageError
from tests.fakes import FakeHost, FakeRDD, FakeStateDStream
from tests.harness import INTERVAL, LogInput

STEP = Duration(INTERVAL)
ZERO = Time(1_000_000)


def at(batch: int) -> Time:
    return ZERO + STEP * batch


class Sums(FakeStateDStream):
    """Counts how often each batch was computed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.computed: list[int] = []

    def compute(self, time: Time) -> Any:
        self.computed.append(time.since(ZERO).milliseconds // INTERVAL)
        return super().compute(time)


class Made:
    """A graph of one input of one record a batch, and a state over it, initialized and planned up to some batch."""

    def __init__(self, planned: int, every: int | None = None, window: int | None = None, without: set[int] | None = None) -> None:
        self.host = FakeHost({})
        self.input = LogInput(self.host, list(range(planned)))
        self.state = Sums(self.input, STEP)
        if every is not None:
            self.state.set_checkpoint_interval(STEP * every)
        last: Any = self.state if window is None else WindowedDStream(self.state, STEP * window, STEP)
        self.host.graph.add_output_stream(ForEachDStream(last, lambda _time, _rdd: None))
        self.host.graph.initialize(ZERO)
        for batch in range(1, planned + 1):
            if batch not in (without or ()):
                self.input.remember_plan(at(batch), JsonPlan({"from": batch - 1, "until": batch}))

    def records(self, batch: int) -> list[int]:
        rdd: Any = self.state.getOrCompute(at(batch))
        return rdd.records


def test_the_interval_is_the_least_number_of_slides_that_makes_ten_seconds() -> None:
    """Spark behaviour CP15."""
    for interval, expected in ((100, 10_000), (1000, 10_000), (3000, 12_000), (10_000, 10_000), (60_000, 60_000)):
        host = FakeHost({}, interval)
        stream = FakeStateDStream(LogInput(host, []), Duration(interval))
        stream.initialize(ZERO)
        assert stream.checkpoint_duration == Duration(expected)


@pytest.mark.parametrize("interval", [0, 0.5, 1.5, -1])
def test_the_interval_must_be_a_multiple_of_the_slide_duration(interval: float) -> None:
    """Spark behaviour CP15."""
    with pytest.raises(ConfigurationError, match="multiple of the stream's slide duration, 1000 ms"):
        LogInput(FakeHost({}), []).checkpoint(interval)


def test_a_stream_with_an_interval_remembers_two_of_them() -> None:
    """BO21: with 3 s the state of 10 s is there after ten batches, and that of 4 s is not."""
    made = Made(10, every=3)
    for batch in range(1, 11):
        made.records(batch)
    made.host.graph.clear_metadata(at(10))
    assert made.state.remember_duration == Duration(6000)
    assert made.state.generated_times == [at(batch) for batch in range(5, 11)]


def test_an_interval_given_to_a_stream_without_state_makes_it_remember_and_returns_the_stream() -> None:
    stream = LogInput(FakeHost({}), [])
    assert stream.checkpoint(Duration(3000)) is stream
    stream.initialize(ZERO)
    assert stream.remember_duration == Duration(6000)


def test_the_interval_is_part_of_the_graphs_record() -> None:
    host = FakeHost({})
    LogInput(host, []).checkpoint(3)
    assert [call.get("call") for call in host.graph.recorder.calls] == [None, "checkpoint"]


def test_thousands_of_batches_behind_are_caught_up_one_after_the_other() -> None:
    made = Made(3000)
    assert len(made.records(3000)) == 3000
    assert made.state.computed == list(range(1, 3001))


def test_batch_times_that_were_never_planned_leave_the_state_as_it_is() -> None:
    made = Made(6, without={3, 4})
    assert made.records(6) == [0, 1, 4, 5]
    assert made.state.computed == [1, 2, 5, 6]
    assert made.state.getOrCompute(at(3)) is None


def test_the_newest_state_is_never_forgotten_nor_the_plans_after_it() -> None:
    made = Made(40, every=1)
    made.records(2)
    made.host.graph.clear_metadata(at(40))
    assert made.state._forgettable(at(60)) == [at(1)]
    assert made.records(40) == list(range(40))


def test_the_blocks_of_a_state_are_let_go_when_the_second_batch_after_it_has_ended() -> None:
    made = Made(5)
    rdds: list[Any] = [made.state.getOrCompute(at(batch)) for batch in range(1, 6)]
    made.host.graph.clear_metadata(at(4))
    assert [rdd.unpersisted for rdd in rdds] == [True, True, False, False, False]
    assert len(made.state.generated_times) == 5


def test_windows_over_a_state_keep_its_blocks_longer() -> None:
    made = Made(8, window=3)
    rdds: list[Any] = [made.state.getOrCompute(at(batch)) for batch in range(1, 9)]
    made.host.graph.clear_metadata(at(7))
    assert [rdd.unpersisted for rdd in rdds] == [True, True, True, False, False, False, False, False]


def test_after_a_restart_nothing_before_the_stored_state_is_computed() -> None:
    made = Made(6)
    made.state.begin(at(3), FakeRDD(["stored"]), empty_before=False)
    assert made.records(5) == ["stored", 3, 4]
    assert made.state.computed == [4, 5]
    with pytest.raises(NoRDDError, match="is no longer known"):
        made.state.getOrCompute(at(2))


def test_a_stream_that_begins_without_state_has_none_before_its_first_batch() -> None:
    made = Made(6)
    made.state.begin(at(3), None, empty_before=True)
    assert made.state.getOrCompute(at(2)) is None
    assert made.records(4) == [3]


def test_a_state_is_due_at_multiples_of_the_interval_and_at_the_next_batch_where_one_was_missed() -> None:
    made = Made(12, every=4)
    made.records(12)
    assert [batch for batch in range(1, 13) if made.state.is_due(at(batch))] == list(range(4, 13))
    made.state.written(at(5), lambda: FakeRDD([]))
    assert [batch for batch in range(1, 13) if made.state.is_due(at(batch))] == list(range(8, 13))


def test_batches_go_on_from_what_was_written() -> None:
    made = Made(6)
    made.records(3)
    made.state.written(at(3), lambda: FakeRDD(["written"]))
    assert made.records(5) == ["written", 3, 4]
    assert made.state.computed == [1, 2, 3, 4, 5]


def test_what_was_written_is_not_read_before_a_batch_needs_it() -> None:
    made = Made(6)
    made.records(3)
    made.state.written(at(3), lambda: pytest.fail("read"))
    made.host.graph.clear_metadata(at(3))
    assert made.records(3) == [0, 1, 2]


def test_an_rdd_that_a_batch_holds_is_never_replaced_by_a_written_state() -> None:
    """Batches 4 and 5 are made while state 3 is being written: they keep their RDDs, and so does the batch after them its lineage."""
    made = Made(8)
    rdds = [made.state.getOrCompute(at(batch)) for batch in range(1, 6)]
    made.state.written(at(3), lambda: pytest.fail("read"))
    assert made.records(6) == list(range(6))
    assert [made.state.getOrCompute(at(batch)) for batch in range(1, 6)] == rdds
    assert made.state.computed == [1, 2, 3, 4, 5, 6]


def test_a_state_is_due_too_when_its_lineage_is_long() -> None:
    """An interval of a minute has six hundred batches of 100 ms."""
    made = Made(70, every=1000)
    made.records(70)
    assert [batch for batch in range(1, 71) if made.state.is_due(at(batch))] == [*range(30, 46), *range(75, 71)]


def test_numbers_are_given_in_the_order_in_which_streams_with_state_are_made() -> None:
    host = FakeHost({})
    source = LogInput(host, [])
    assert [FakeStateDStream(source, STEP).state_id for _ in range(2)] == ["s0", "s1"]


def test_while_states_cannot_be_written_a_local_checkpoint_cuts_the_lineage_and_keeps_its_blocks_until_the_next_does() -> None:
    """With a lineage of hundreds Spark runs out of stack."""
    made = Made(100)
    made.records(100)
    rdds: list[Any] = [made.state.getOrCompute(at(batch)) for batch in range(1, 101)]
    assert [number for number, rdd in enumerate(rdds, start=1) if rdd.cut] == [45, 90]
    made.host.graph.clear_metadata(at(89))
    assert not rdds[44].unpersisted and all(rdd.unpersisted for rdd in rdds[:44])
    assert at(45) in made.state.generated_times
    made.host.graph.clear_metadata(at(92))
    assert rdds[44].unpersisted and not rdds[89].unpersisted


def test_batch_times_that_were_never_planned_make_no_lineage_longer() -> None:
    made = Made(100, without=set(range(10, 90)))
    rdds: list[Any] = [made.state.getOrCompute(at(batch)) for batch in range(1, 101)]
    assert [rdd for rdd in rdds if rdd is not None and rdd.cut] == []


def test_no_state_goes_back_unless_all_can() -> None:
    made = Made(40)
    other = FakeStateDStream(made.state, STEP)
    made.host.graph.add_output_stream(ForEachDStream(other, lambda _time, _rdd: None))
    made.host.graph.initialize(ZERO)
    other.getOrCompute(at(30))
    made.state.written(at(20), lambda: FakeRDD(range(20)))

    def unreadable() -> FakeRDD:
        raise StorageError("the store is away")

    other.written(at(20), unreadable)
    before = made.state.generated_times
    assert not made.host.graph.go_back()
    assert made.state.generated_times == before


def test_lost_blocks_are_made_anew_from_what_was_written() -> None:
    made = Made(40)
    made.records(35)
    made.state.written(at(20), lambda: FakeRDD(range(20)))
    assert made.host.graph.go_back()
    assert made.state.generated_times[-1] == at(20)
    assert made.records(40) == list(range(40))
    assert made.state.computed.count(21) == 2 and made.state.computed.count(20) == 1


def test_what_was_written_is_no_help_without_the_plans_of_all_batches_after_it() -> None:
    made = Made(40)
    made.records(35)
    made.state.written(at(3), lambda: pytest.fail("read"))
    made.input.clear_metadata(at(40))
    assert not made.host.graph.go_back()
    assert made.state.generated_times[-1] == at(35)


def test_what_was_written_is_no_help_either_when_only_the_newest_states_are_remembered() -> None:
    made = Made(60, every=2)
    made.records(50)
    made.state.written(at(20), lambda: pytest.fail("read"))
    made.host.graph.clear_metadata(at(50))
    assert not made.host.graph.go_back()
    assert made.state.generated_times[-1] == at(50)


def stand_on(made: Made, batch: int) -> None:
    """The state of a batch is written, and the next batch is made of it."""
    made.state.written(at(batch), lambda: FakeRDD([batch]))
    made.records(batch + 1)


def test_files_that_batches_may_have_to_read_are_named_until_those_have_ended_and_younger_ones_are_made_of_newer_files() -> None:
    made = Made(planned=12, every=4)
    made.records(4)
    stand_on(made, 4)
    made.records(6)
    assert made.state.states_to_read(at(5), {at(5), at(6)}) == {at(4)}
    assert made.state.states_to_read(at(4), {at(4), at(5)}) == {ZERO, at(4)}, "batch 4 holds the RDD from which its state was written"
    made.state.written(at(6), lambda: FakeRDD([6]))
    assert made.state.states_to_read(at(7), set()) == {at(4)}, "the newest state is made of it"
    made.records(7)
    assert made.state.states_to_read(at(8), set()) == {at(6)}
    assert made.state.states_to_read(at(6), set()) == {at(4), at(6)}


def test_files_that_a_failed_batch_reads_are_named_until_it_has_succeeded() -> None:
    made = Made(planned=12, every=4)
    made.records(2)
    stand_on(made, 2)
    made.records(6)
    stand_on(made, 6)
    made.records(9)
    assert made.state.states_to_read(at(10), {at(4)}) == {at(2), at(6)}
    assert made.state.states_to_read(at(10), set()) == {at(6)}


def test_windows_over_a_state_keep_the_files_that_it_is_computed_from() -> None:
    made = Made(planned=12, every=4, window=3)
    made.records(2)
    stand_on(made, 2)
    made.records(6)
    stand_on(made, 6)
    assert made.state.states_to_read(at(8), set()) == {at(2), at(6)}
    assert made.state.states_to_read(at(10), set()) == {at(6)}


# -- with Spark's RDD checkpoints in place of a checkpoint directory of the StreamingContext


def checkpointed_by_spark(planned: int, every: int | None = None, window: int | None = None) -> Made:
    made = Made(planned, every, window)
    made.state.uses_rdd_checkpoints = True
    return made


def write(made: Made, batch: int) -> None:
    """As a job of Spark's does: what is marked gets files."""
    rdd: Any = made.state.getOrCompute(at(batch))
    if rdd.marked:
        rdd.checkpoint_file = f"rdd-{batch}"


def test_spark_checkpoints_the_state_of_every_interval() -> None:
    made = checkpointed_by_spark(planned=20, every=4)
    made.records(20)
    rdds: list[Any] = [made.state.getOrCompute(at(batch)) for batch in range(1, 21)]
    assert [number for number, rdd in enumerate(rdds, start=1) if rdd.marked] == [4, 8, 12, 16, 20]


def test_spark_checkpoints_a_state_sooner_where_an_interval_has_too_many_batches() -> None:
    """A lineage of hundreds of RDDs exhausts the stack. A local checkpoint is lost with its executor, and nothing could replace it."""
    made = checkpointed_by_spark(planned=100, every=50)
    made.records(100)
    rdds: list[Any] = [made.state.getOrCompute(at(batch)) for batch in range(1, 101)]
    assert [number for number, rdd in enumerate(rdds, start=1) if rdd.marked] == [30, 50, 80, 100]
    assert not any(rdd.cut for rdd in rdds)


def test_a_state_that_spark_checkpoints_is_never_due_for_a_restart() -> None:
    made = checkpointed_by_spark(planned=20, every=2)
    made.records(20)
    assert not any(made.state.is_due(at(batch)) for batch in range(1, 21))


def test_files_of_rdd_checkpoints_are_removed_when_no_remembered_rdd_descends_from_them() -> None:
    made = checkpointed_by_spark(planned=40, every=2)
    kept = 0
    for batch in range(1, 41):
        write(made, batch)
        made.host.graph.clear_metadata(at(batch))
        made.state.remove_outdated_checkpoints()
        oldest = min(made.state.generated_times)
        removed = [int(file.removeprefix("rdd-")) for file in made.host.state_rdds.removed]
        assert all(any(at(newer) <= oldest for newer in range(old + 2, batch + 1, 2)) for old in removed)
        kept = max(kept, len(made.state._lineage.rdd_checkpoints))
    assert len(made.host.state_rdds.removed) == len(set(made.host.state_rdds.removed)) == 17
    assert kept <= 4


def test_windows_over_a_state_keep_the_rdd_checkpoints_that_they_may_read() -> None:
    made = checkpointed_by_spark(planned=40, every=2, window=10)
    for batch in range(1, 41):
        write(made, batch)
        made.host.graph.clear_metadata(at(batch))
        made.state.remove_outdated_checkpoints()
    assert at(30) in made.state._lineage.rdd_checkpoints


def test_an_rdd_checkpoint_stays_while_no_newer_one_has_files() -> None:
    """As when no output has run a job on the newer ones yet."""
    made = checkpointed_by_spark(planned=40, every=2)
    made.records(40)
    write(made, 2)
    made.host.graph.clear_metadata(at(40))
    made.state.remove_outdated_checkpoints()
    assert made.host.state_rdds.removed == []
    newer: Any = made.state._lineage.rdd_checkpoints[at(36)]
    newer.checkpoint_file = "rdd-36"
    made.state.remove_outdated_checkpoints()
    assert made.host.state_rdds.removed == ["rdd-2"]


def test_an_rdd_checkpoint_that_cannot_be_removed_is_tried_again() -> None:
    made = checkpointed_by_spark(planned=40, every=2)
    for batch in range(1, 41):
        write(made, batch)
    made.host.graph.clear_metadata(at(40))
    refused, made.host.state_rdds.remove_checkpoint = made.host.state_rdds.remove_checkpoint, lambda _path: 1 / 0
    with pytest.raises(ZeroDivisionError):
        made.state.remove_outdated_checkpoints()
    made.host.state_rdds.remove_checkpoint = refused
    made.state.remove_outdated_checkpoints()
    assert made.host.state_rdds.removed == [f"rdd-{batch}" for batch in range(2, 36, 2)]
