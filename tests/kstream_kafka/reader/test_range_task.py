"""The elements of a Kafka task, and the record that each is of."""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kstream_kafka import OffsetRange, value_only
from kstream_kafka.reader import range_task
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import BatchReadContext, Lend, RangeReads
from kstream_kafka.reader.range_task import RangeTask, ReportToDriver

from kstream.errors import DeadLetterNotStoredError
from kstream.offsets.read_report import ReadReport
from kstream.worker import exception_hook
from kstream.worker.current_record import begin_task, current_record
from kstream.worker.record_errors import ErrorLimit, ErrorsPolicy, TaskErrors, letters_text
from kstream.worker.record_failure import RecordFailure
from tests.fakes import fake_reports
from tests.kstream_kafka.fakes import Message, records


class Chunks(RangeReads):
    """The chunks of two ranges, the first with a gap in its offsets."""

    def chunks(self, index: int, lend: Lend, errors: TaskErrors | None = None) -> Iterator[tuple[OffsetRange, list[Any]]]:
        yield OffsetRange("t", 0, 0, 6), records((0, 1, 4))
        yield OffsetRange("t", 0, 0, 6), records((5,))
        yield OffsetRange("u", 3, 7, 9), records((7, 8), where=("u", 3))


def task(decoder: Callable[[Any], Any] | None = None, decoding: Decoding | None = None) -> RangeTask:
    begin_task()
    return RangeTask(Chunks((), {}, 1000), decoding or Decoding(None, decoder, value_only))


def test_each_element_is_of_its_record_over_chunks_and_ranges_and_gaps() -> None:
    found = [(value, str(current_record())) for value in task()(0)]
    assert found == [(b"0", "t-0@0"), (b"1", "t-0@1"), (b"4", "t-0@4"), (b"5", "t-0@5"), (b"7", "u-3@7"), (b"8", "u-3@8")]


def test_the_record_has_its_timestamp_and_the_message_untouched() -> None:
    elements = iter(task()(0))
    next(elements)
    record = current_record()
    assert record is not None and record.timestamp == 1000 and isinstance(record.raw, Message) and record.raw.value() == b"0"


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(None, lambda v: 1 // (v != b"4"), value_only),
        Decoding(None, lambda v: 1 // (v != b"4")),
        Decoding(message_handler=lambda m: 1 // (m.offset != 4)),
    ],
)
def test_a_decoder_or_handler_that_fails_is_run_record_by_record_to_name_the_record(decoding: Decoding) -> None:
    with pytest.raises(ZeroDivisionError):
        list(task(decoding=decoding)(0))
    assert str(current_record()) == "t-0@4"


def test_a_decoder_that_fails_only_once_names_no_record() -> None:
    calls: list[bytes] = []

    def moody(value: bytes) -> bytes:
        calls.append(value)
        if len(calls) == 2:
            raise ValueError("not now")
        return value

    with pytest.raises(ValueError, match="not now"):
        list(task(moody)(0))
    assert current_record() is None


def test_the_elements_of_a_chunk_are_gone_when_the_next_one_is_decoded() -> None:
    """Otherwise two chunks would be alive at a time, and reading takes a quarter longer."""
    alive: weakref.WeakSet[Element] = weakref.WeakSet()
    most: list[int] = []

    def decode(value: bytes) -> Element:
        element = Element(value)
        alive.add(element)
        most.append(len(alive))
        return element

    for element in task(decode)(0):
        del element
    assert max(most) == 3, "the first chunk has three records, the others fewer"


# -- dead letters of several outputs


FULL_DISK = "full disk"


class Letters:
    """Dead letters in a list; they are not stored if there is `trouble`."""

    def __init__(self) -> None:
        self.written: list[int | None] = []
        self.stored: list[int | None] = []
        self.trouble = ""

    def open(self, task: int) -> Letters:
        return self

    def write(self, failure: RecordFailure) -> None:
        self.written.append(failure.record.offset)

    def flush(self) -> None:
        if self.trouble == FULL_DISK:
            raise OSError(28, "No space left on device")
        if self.trouble:
            raise DeadLetterNotStoredError(self.trouble)
        self.stored += self.written


class Reads(RangeReads):
    """Reads two chunks of a range."""

    def _read(self, index: int, lend: Lend, report: ReadReport) -> Iterator[Any]:
        for offsets in (0, 1, 2), (3, 4):
            yield OffsetRange("t", 0, 0, 5), records(offsets)


class Outputs:
    """A batch whose outputs read one range: the driver hands what was reported to the tasks of the next output, as a local property."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.letters, self.reports = Letters(), fake_reports()
        self._patch = patch

    def run(self, poison: set[int], most: int = 99, then: Callable[[], object] = lambda: None, batch_ms: int | None = None) -> None:
        """Run an output of a batch, by default of that of the range; of a later one it is a window."""
        stored = self.reports.letters_until(batch_ms or 7)

        class Context:
            def getLocalProperty(self, name: str) -> str | None:
                return letters_text(stored) if name == "stored" and stored else None

            @staticmethod
            def get() -> Context:
                return Context()

        self._patch.setattr(range_task, "TaskContext", Context)
        policy = ErrorsPolicy(ErrorLimit(1, 100), self.letters, "stored", 7)
        accumulator: Any = self.reports.accumulator
        reads = Reads(((),), {}, 1000, BatchReadContext(report_to=ReportToDriver(accumulator, 7), errors=policy))

        def decode(value: bytes) -> int:
            return 1 // (int(value) not in poison)

        begin_task()
        elements = iter(RangeTask(reads, Decoding(None, decode, value_only))(0))
        for _ in zip(range(most), elements, strict=False):
            then()
        del elements


def test_a_record_that_fails_for_several_outputs_is_one_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = Outputs(monkeypatch)
    outputs.run({1, 4})
    outputs.run({1, 4})
    outputs.run({1, 3, 4})
    assert outputs.letters.written == [1, 4, 3]
    assert outputs.reports.errors(7)["errors"] == {
        ("", 0, 0): {("valueDecoder", "ZeroDivisionError"): (3, "t-0@1: integer division or modulo by zero")}
    }


def test_a_window_writes_only_the_letters_of_an_ended_batch_that_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = Outputs(monkeypatch)
    outputs.run({1, 4}, most=1)
    outputs.reports.take(7)
    for window in 8, 9:
        outputs.run({1, 4}, batch_ms=window)
        outputs.reports.take(window)
    assert outputs.letters.written == [1, 4]
    outputs.reports.forget(7)
    outputs.run({1, 4}, batch_ms=10)
    assert outputs.letters.written == [1, 4, 1, 4]


def test_a_letter_that_was_not_stored_is_written_for_the_next_output(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = Outputs(monkeypatch)
    outputs.letters.trouble = "the topic is full"
    with pytest.raises(DeadLetterNotStoredError):
        outputs.run({4})
    outputs.run({1, 4}, most=1)  # cut short: the report says that the letter is not stored
    outputs.letters.trouble = ""
    outputs.run({1, 4})
    outputs.run({1, 4})
    assert outputs.letters.written == [4, 1, 1, 4]


@pytest.mark.parametrize("trouble", ["the topic is full", FULL_DISK])
def test_a_letter_that_could_not_be_stored_by_a_task_that_ended_early_is_in_its_report(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops the error of a generator that is closed. Without the report the batch would succeed without the letter."""
    outputs = Outputs(monkeypatch)
    outputs.letters.trouble = trouble
    outputs.run({1, 4}, most=1)
    assert list(outputs.reports.errors(7)["undelivered"]) == [("", 0, 0)]


def test_a_task_whose_function_fails_stores_no_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next attempt writes them. The reader is closed after PySpark has reported the error."""
    outputs, report = Outputs(monkeypatch), io.BytesIO()

    def sink() -> None:
        try:
            outputs.run({1, 4}, then=lambda: 1 // 0)
        except ZeroDivisionError as e:
            exception_hook._Hook(lambda *_: None)(e, report)  # pyright: ignore[reportPrivateUsage]

    sink()
    assert outputs.letters.written == [1] and outputs.letters.stored == []
    outputs.run({1, 4})
    assert outputs.letters.written == [1, 1, 4] and outputs.letters.stored


class Element:
    """An element to which a weak reference can be made."""

    def __init__(self, value: bytes) -> None:
        self.value = value
