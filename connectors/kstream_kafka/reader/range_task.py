"""RangeTask: the work of a Spark task. It borrows a consumer, reads splits and decodes. Tasks pickle the classes by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from kstream.offsets.read_report import ReportData
from kstream.worker.current_record import between_chunks, hand_out, note_decoding, reading
from kstream.worker.record_errors import ErrorsPolicy, StoredLetters, TaskErrors, in_this_task, letters_of_text
from kstream_kafka.client.ports import RangeConsumer, Settings
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.reader.tolerant_decoding import TolerantDecoding, record_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator


@dataclass(frozen=True)
class ReportToDriver:
    """Sends the reports of the tasks of a batch to the driver. Immutable; pickled into the tasks.

    Attributes:
        accumulator: collects the reports, by batch time.
        time_ms: the batch time, in ms.
    """

    accumulator: Accumulator[dict[int, ReportData]]
    time_ms: int

    def __call__(self, report: ReportData) -> None:
        """Add the report of a task. It reaches the driver with the result of the task."""
        self.accumulator.add({self.time_ms: report})


def lend_in_task(settings: Settings) -> AbstractContextManager[RangeConsumer]:
    """Lend a consumer of this worker process to the running Spark task, for a `with` block; a new one if the task is a repeated one."""
    context = TaskContext.get()
    attempt = context.taskAttemptId() if context else -1
    # Python cannot see the attempt number of a stage. In a repeated stage a task keeps its consumer and only assigns it again.
    retry = bool(context and context.attemptNumber() > 0)
    return consumer_cache.of_this_process().lend(settings, attempt, retry)


@dataclass(frozen=True)
class RangeTask:
    """The function of a KafkaRDD: partition index → elements. Immutable; pickled into the tasks.

    Attributes:
        reads: the splits to read.
        decoding: makes the elements from the messages.
    """

    reads: RangeReads
    decoding: Decoding

    def __call__(self, index: int) -> Iterable[Any]:
        """Return the elements of a partition of the RDD. Lazy: the read, and its errors, come with the iteration."""
        return itertools.chain.from_iterable(self._decoded(index))

    def _decoded(self, index: int) -> Iterator[Iterator[Any]]:
        """Yield the elements of each chunk of a task. While they are handed out, `current_record` knows which record each one is of."""
        with reading():
            for messages, elements in self._chunks(index):
                handed_out = hand_out(elements, partial(record_of, messages))
                del elements  # else the elements of two chunks would be alive while the next one is decoded
                yield handed_out
                del handed_out
                between_chunks()

    def _chunks(self, index: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield the messages and the elements of each chunk of a task; under an errors policy without those that cannot be decoded."""
        policy = self.reads.read_context.errors
        if policy is None:
            for where, messages in self.reads.chunks(index, lend_in_task):
                yield messages, decode_chunk(self.decoding.of_chunk(where), messages)
            return
        errors = TaskErrors(policy, index, partial(stored_letters, policy))
        tolerant = TolerantDecoding(self.decoding, errors)
        with in_this_task(errors):
            for where, messages in self.reads.chunks(index, lend_in_task, errors):
                yield tolerant.decoded(where, messages)


def stored_letters(policy: ErrorsPolicy) -> StoredLetters:
    """Return which dead letters of the task's batch are stored already, so that this task does not write them again.

    The driver has put them into a local property of Spark before the Spark job began. None are known without the property.
    """
    context = TaskContext.get()
    text = context.getLocalProperty(policy.stored_property) if context is not None else None
    return letters_of_text(text, policy.batch_ms) if text else {}


def decode_chunk(decode: Callable[[list[Any]], list[Any]], messages: list[Any]) -> list[Any]:
    """Return the elements of a chunk. If that fails, decode record by record, to find the record that fails: it is the current record then.

    Raises:
        Exception: the error of the user's decoder or handler for the first record that fails; that of the whole chunk if none fails alone.
    """
    try:
        return decode(messages)
    except Exception:
        for position, message in enumerate(messages):
            note_decoding(position, partial(record_of, messages))
            decode([message])
        between_chunks()
        raise
