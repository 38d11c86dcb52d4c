"""InputDStreamContract: the promises of every input, as tests to inherit. Only running them needs pytest.

    class TestMyInput(RestorableInputDStreamContract):
        def make_input(self) -> InputDStream: ...                      # on its own context, as a starting driver makes it
        def produce(self, stream, time, count) -> list[Any]: ...       # adds `count` records to the source for the batch at `time`

An input that cannot continue after the death of its driver, because its records are lost, inherits only InputDStreamContract. `make_input`
may return streams of a StreamingContext that is never started. Override `records` if the records of an RDD are not read by `collect`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from kstream.batch import PlannedInput
from kstream.batch_time import Time
from kstream.dstream import InputDStream
from kstream.dstream.ports import InputServices

INTERVAL = 1000
ZERO = 1_000_000
"""The zero time in ms. Batches are at ZERO + INTERVAL, ZERO + 2 × INTERVAL …; a clock of the input should begin at ZERO."""


class InputDStreamContract(ABC):
    """The tests of an input. A subclass makes the input and adds records to its source. The names of the tests are the promises."""

    @abstractmethod
    def make_input(self) -> InputDStream:
        """Return the input of a starting driver. A test calls this again for the driver that takes over."""

    @abstractmethod
    def produce(self, stream: InputDStream, time: Time, count: int) -> list[Any]:
        """Add new records to the source, before the batch at `time` is planned.

        Args:
            stream: the input.
            time: the batch.
            count: the number of records, at least 1.

        Returns:
            The records. No two records of a test are equal.
        """

    def services(self, stream: InputDStream) -> InputServices:
        """Return the driver's services, which are passed to `start`."""
        return InputServices()

    def records(self, rdd: Any) -> list[Any]:
        """Return the records of an RDD, in any order."""
        return rdd.collect()

    def setup_method(self) -> None:
        self._streams: list[InputDStream] = []

    def teardown_method(self) -> None:
        for stream in self._streams:
            stream.stop()

    # -- for the tests

    def started(self) -> tuple[InputDStream, PlannedInput]:
        """Make and start an input for the first time. Return the input and its starting point."""
        stream = self._made()
        stream.start(self.services(stream))
        return stream, stream.starting_point()

    def _made(self) -> InputDStream:
        """Make an input with its zero time, not started. It is stopped after the test."""
        stream = self.make_input()
        self._streams.append(stream)
        stream.initialize(Time(ZERO))
        return stream

    def batch(self, stream: InputDStream, number: int) -> tuple[PlannedInput, list[Any]]:
        """Plan a batch as a driver does, and read it. Return its plan and its sorted records."""
        time = batch_time(number)
        plan = stream.plan(time)
        stored(plan)
        stream.remember_plan(time, plan)
        stream.planned(time, plan)
        return plan, self.read(stream, number)

    def read(self, stream: InputDStream, number: int) -> list[Any]:
        """Return the sorted records of a planned batch, from an RDD that is made now."""
        rdd = stream.compute(batch_time(number))
        assert rdd is not None, f"batch {number} was planned, and has no RDD"
        return sorted(self.records(rdd))

    # -- the promises

    def test_a_batch_has_what_came_since_the_last(self) -> None:
        stream, _ = self.started()
        for number in (1, 2, 3):
            came = self.produce(stream, batch_time(number), number)
            assert self.batch(stream, number)[1] == sorted(came)

    def test_a_batch_in_which_nothing_came_has_an_rdd_without_records(self) -> None:
        stream, _ = self.started()
        assert self.batch(stream, 1)[1] == []

    def test_the_starting_point_is_a_batch_of_nothing(self) -> None:
        _, point = self.started()
        assert point.num_records == 0
        stored(point)

    def test_planning_moves_nothing(self) -> None:
        stream, _ = self.started()
        self.produce(stream, batch_time(1), 2)
        assert stored(stream.plan(batch_time(1))) == stored(stream.plan(batch_time(1)))

    def test_what_a_plan_held_that_was_never_stored_goes_to_the_next_batch(self) -> None:
        stream, _ = self.started()
        first = self.produce(stream, batch_time(1), 2)
        stream.plan(batch_time(1))
        came = [*first, *self.produce(stream, batch_time(2), 3)]
        batches = [self.batch(stream, number)[1] for number in (2, 3, 4)]  # some inputs put only one element of their queue into a batch
        assert sorted(record for batch in batches for record in batch) == sorted(came)

    def test_what_comes_after_its_plan_is_not_in_a_batch(self) -> None:
        stream, _ = self.started()
        came = self.produce(stream, batch_time(1), 2)
        self.batch(stream, 1)
        later = self.produce(stream, batch_time(2), 2)
        assert self.read(stream, 1) == sorted(came)
        assert self.batch(stream, 2)[1] == sorted(later)

    def test_a_batch_read_again_has_the_same_records_whatever_was_planned_since(self) -> None:
        stream, _ = self.started()
        stream.remember(stream.slide_duration * 10)
        came: list[list[Any]] = []
        for number in (1, 2, 3):
            came.append(sorted(self.produce(stream, batch_time(number), 2)))
            self.batch(stream, number)
        assert [self.read(stream, number) for number in (1, 2, 3)] == came

    def test_it_tells_as_many_records_as_there_are_or_none(self) -> None:
        stream, _ = self.started()
        self.produce(stream, batch_time(1), 3)
        assert stream.plan(batch_time(1)).num_records in (0, 3)

    def test_listeners_get_plain_facts(self) -> None:
        stream, _ = self.started()
        self.produce(stream, batch_time(1), 1)
        plan, _records = self.batch(stream, 1)
        assert isinstance(stream.metadata(batch_time(1), plan).get("Description", ""), str)

    def test_a_plan_comes_back_from_the_log_as_it_was(self) -> None:
        stream, point = self.started()
        self.produce(stream, batch_time(1), 2)
        for plan in (point, self.batch(stream, 1)[0]):
            assert stored(stream.decode(stored(plan))) == stored(plan)

    def test_the_driver_that_makes_a_plan_does_not_decode_it(self) -> None:
        stream, _ = self.started()
        decoded: list[Any] = []
        decode = stream.decode
        stream.decode = lambda data: decoded.append(data) or decode(data)
        for number in (1, 2):
            self.produce(stream, batch_time(number), 1)
            plan, _records = self.batch(stream, number)
            stream.metadata(batch_time(number), plan)
            stream.outcome_of(batch_time(number))
        assert decoded == []

    def test_stop_may_be_called_twice_and_without_start(self) -> None:
        stream, _ = self.started()
        stream.stop()
        stream.stop()
        self._made().stop()


class RestorableInputDStreamContract(InputDStreamContract):
    """The tests of an input that continues exactly where a dead driver stopped."""

    def takes_over(self, *plans: tuple[int, PlannedInput]) -> InputDStream:
        """Make and start the input of a new driver that finds these plans in the log.

        Args:
            plans: (batch number, plan), oldest first. The number of the starting point is 0.
        """
        stream = self._made()
        decoded = [(batch_time(number), stream.decode(stored(plan))) for number, plan in plans]
        stream.restored(*decoded[-1])
        for time, plan in decoded:
            stream.remember_plan(time, plan)
        stream.start(self.services(stream))
        return stream

    def test_a_new_driver_goes_on_behind_the_newest_plan(self) -> None:
        stream, point = self.started()
        self.produce(stream, batch_time(1), 2)
        first, _records = self.batch(stream, 1)
        second = self.takes_over((0, point), (1, first))
        came = self.produce(second, batch_time(2), 2)
        assert self.batch(second, 2)[1] == sorted(came)

    def test_a_new_driver_reads_a_pending_batch_as_it_was_planned(self) -> None:
        stream, point = self.started()
        came = self.produce(stream, batch_time(1), 2)
        first, _records = self.batch(stream, 1)
        self.produce(stream, batch_time(2), 2)
        second = self.takes_over((0, point), (1, first))
        assert self.read(second, 1) == sorted(came)

    def test_what_came_while_no_driver_ran_is_read_by_the_next_once(self) -> None:
        stream, point = self.started()
        first, _records = self.batch(stream, 1)
        came = self.produce(stream, batch_time(2), 2)
        second = self.takes_over((0, point), (1, first))
        second.missed([batch_time(2), batch_time(3)])
        assert sorted(record for number in (2, 3, 4) for record in self.batch(second, number)[1]) == sorted(came)

    def test_what_came_behind_the_starting_point_of_a_driver_that_never_planned_is_read(self) -> None:
        stream, point = self.started()
        came = self.produce(stream, batch_time(1), 2)
        second = self.takes_over((0, point))
        assert self.batch(second, 1)[1] == sorted(came)


def batch_time(number: int) -> Time:
    """Return the time of a batch by its number. The starting point has number 0."""
    return Time(ZERO + number * INTERVAL)


def stored(plan: PlannedInput) -> dict[str, Any]:
    """Return the stored form of a plan, as a restart reads it. AssertionError if that is not plain JSON."""
    encoded = plan.encode()
    data = json.loads(json.dumps(encoded))
    assert data == encoded, "an encoded plan must come back from JSON as it was: no tuples, no numbers as keys"
    return data
