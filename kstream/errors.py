"""The exceptions of kstream's core, in one tree.

    KStreamError
    ├── ConfigurationError            a setting has a value that cannot work
    ├── PortTakenError                another process has the port that is to be opened        (retriable)
    ├── IllegalStateError             a call came in the wrong phase of life (start after stop …)
    ├── ListenerStopError             stop() was called from inside a listener
    ├── BatchError                    an error of one batch
    │   ├── PlanFailedError           the plan of a batch could not be stored; no offset moved
    │   └── NoRDDError                an operator needed an RDD and its parent had none
    ├── TooManyRecordErrorsError      more records of a batch failed than its errors policy allows
    ├── DeadLetterNotStoredError      a record that failed could not be written to the dead letters
    ├── DataLossError                 data that a batch was to read is gone for good
    │   ├── FileLostError             a planned file has been removed, or cut
    │   └── BlocksLostError           received blocks died with the driver that held them
    ├── TransientError                an external system cannot be asked or read now           (retriable)
    ├── UnreadableFileError           a file does not have the format that its stream reads
    │   └── RecordLengthError         its size is no multiple of the record length
    ├── StorageError                  the store under a checkpoint failed
    │   ├── AlreadyExistsError        create-if-absent found the name taken
    │   ├── MissingFileError          a file does not exist
    │   ├── OutsideStoreError         a name leads out of the store
    │   └── UnsupportedStoreError     the store cannot create-if-absent
    ├── WriteAheadLogError            a record could not be written to a batched write-ahead log
    ├── BlockNotStoredError           a received block could not be kept
    ├── RpcError                      another process of the application could not do a request
    │   ├── RpcRefusedError           the other process does not know the token
    │   └── RpcUnreachableError       the other process did not answer
    ├── NotEnoughCoresError           the cluster has not given the cores that receivers need
    ├── ReceiverNotStartedError       a receiver has ended by an error again and again, and has never started
    ├── EpochTaskFailedError          the function of a continuous stream fails at one record again and again
    ├── NotSerializableError          a function of the user cannot be pickled, or the graph cannot be stored
    ├── CheckpointError               the stored data of a checkpoint cannot be used
    │   ├── CorruptRecordError        a record is damaged or missing
    │   ├── FormatVersionError        a newer kstream has written a record
    │   ├── IntervalChangedError      the batch interval differs from the stored one
    │   ├── WindowChangedError        a window with an inverse has another duration than its stored totals
    │   ├── GraphNotRestoredError     the graph that recovery=graph has stored cannot be restored
    │   ├── MissingPlanError          a plan was removed, and the records of its batch are in no other plan
    │   ├── StreamVanishedError       offsets are stored of a stream that the job no longer has
    │   ├── OutputVanishedError       a pending batch needs an output that the job no longer has
    │   ├── OutputChangedError        what an output has written does not fit the batch, or the checkpoint
    │   ├── TopicsChangedError        a stream reads none of the topics whose offsets are stored for it
    │   └── NotRecoverableError       an input cannot be restored at all (queueStream)
    ├── FencedError                   another driver has taken this checkpoint
    ├── StateError                    a call of a key's State that its condition does not allow
    ├── StateNotStorableError         a key or its state cannot be kept as bytes
    ├── StateLostError                blocks or files of a state are gone, and repairs did not help
    ├── MissingDependencyError        an optional part is not installed
    ├── JavaNotFoundError             no Java that Spark can run on
    └── JvmLostError                  Spark's JVM has ended while the context was running

The facts of an error are attributes. Its message has the event, the values, and the remedy. `retriable` on the class is whether the same
call may succeed later; `outage` is whether a system on which the driver depends is away. `is_refusal` ends a start for good. All errors can
be pickled.
"""

from __future__ import annotations

import re
import signal
import traceback
from contextlib import suppress
from typing import Any, ClassVar

from kstream.secret import line_without_secrets, without_logins


class KStreamError(Exception):
    """Base of every error that kstream raises.

    Args:
        message: the text of the error, for people.
        facts: the values in the message; each is also an attribute.
    """

    retriable: ClassVar[bool] = False
    outage: ClassVar[bool] = False
    """Whether brokers or a store did not answer. The JobGenerator waits for them, up to `unreachableTimeout`."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    @property
    def is_refusal(self) -> bool:
        """Whether another system refuses what this job asks for. A person must change something there, or in the job.

        A job that ran before may meet such an error for a while, as when its password is replaced.
        """
        return False

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.message, self.facts)

    def __str__(self) -> str:
        return self.message


def _rebuild(cls: type[KStreamError], message: str, facts: dict[str, Any]) -> KStreamError:
    """Make a pickled error again, without calling `__init__` of its class."""
    error = cls.__new__(cls)
    KStreamError.__init__(error, message, **facts)
    return error


class ConfigurationError(KStreamError):
    """A setting or an argument has a value that cannot work. Facts: key, and for most: value."""


class PortTakenError(KStreamError):
    """Another process has the port that this one is to open. Facts: place (host:port)."""

    retriable = True


class IllegalStateError(KStreamError):
    """A call came in a state of its object that does not allow it, such as `start` after `stop`. Facts: state."""


class ListenerStopError(IllegalStateError):
    """stop() was called from inside a StreamingListener, where it would wait for itself."""


class BatchError(KStreamError):
    """An error of one batch. Facts: time (ms)."""


class PlanFailedError(BatchError):
    """The plan of a batch could not be stored; the next batch starts at the same offsets."""

    retriable = True
    outage = True


class NoRDDError(BatchError):
    """An operator needed the RDD of a parent stream for a batch time, and there was none. Facts: time."""


class TooManyRecordErrorsError(KStreamError):
    """More records of a batch failed than its errors policy allows. Facts: errors, records, ratio, first (the first failure)."""


class DeadLetterNotStoredError(KStreamError):
    """A record that failed could not be written to the dead letters, so its batch fails. Facts: reason."""


class DataLossError(KStreamError):
    """Data that a batch was to read is gone for good."""


class TransientError(KStreamError):
    """An external system cannot be asked or read now, and the same call may succeed later. Connectors raise it."""

    retriable = True
    outage = True


class FileLostError(DataLossError):
    """A file of a batch's plan was removed or cut after planning. Facts: path, size (as planned), found (its size now; None if gone)."""


class BlocksLostError(DataLossError):
    """Blocks of a batch's plan were lost with the driver that held them. Facts: time (ms), stream, blocks ([id, number of records], …)."""


class UnreadableFileError(KStreamError):
    """The contents of a file do not have the format that its stream reads. Facts: path."""


class RecordLengthError(UnreadableFileError):
    """A file does not hold a whole number of records. Facts: path, size, record_length."""


class StorageError(KStreamError):
    """The store under a checkpoint failed. Facts: path."""

    retriable = True
    outage = True


class AlreadyExistsError(StorageError):
    """Create-if-absent found the name taken."""

    retriable = False
    outage = False


class MissingFileError(StorageError):
    """A file does not exist."""

    retriable = False
    outage = False


class OutsideStoreError(StorageError):
    """The name of a file leads out of its store: it is absolute, or has `..`. Facts: path (of the store), name."""

    retriable = False
    outage = False


class UnsupportedStoreError(StorageError):
    """The store under this URL cannot create a file only if it is absent."""

    retriable = False
    outage = False


class StateLostError(KStreamError):
    """Blocks or files of a state are gone, and the batch that needs them could not be repaired. Facts: time, repairs."""


class BlockNotStoredError(KStreamError):
    """A received block could not be stored, so its records are not acknowledged. Facts: block, size, free (bytes)."""


class RpcError(KStreamError):
    """A request to another process of the application failed. Facts: place (host:port)."""


class RpcRefusedError(RpcError):
    """The other process refused the request: it belongs to another application, or to an earlier start of this one."""


class RpcUnreachableError(RpcError):
    """The other process did not answer: it is dead, or the network fails. The request may have been executed."""

    retriable = True


class NotEnoughCoresError(KStreamError):
    """The cluster has not given the cores that receivers need. Facts: receivers, needed, cores, executors, waited_s."""

    retriable = True


class ReceiverNotStartedError(KStreamError):
    """A receiver has ended by an error so many times in a row, each time before its start. Facts: stream, receiver, times, reason."""


class EpochTaskFailedError(KStreamError):
    """The function of a continuous stream fails at one record again and again. Facts: topic, partition, offset, times, reason."""


class WriteAheadLogError(KStreamError):
    """A batched write-ahead log did not acknowledge a record. The log may contain it nevertheless. Facts: time (ms), reason."""


class NotSerializableError(KStreamError):
    """A function for the workers cannot be pickled, or recovery=graph cannot store the graph. Facts: sites (operators and lines)."""


class CheckpointError(KStreamError):
    """The stored data of a checkpoint cannot be used. Facts: path."""


class CorruptRecordError(CheckpointError):
    """A record is damaged, is missing, or has the name of another one. Facts: path, reason."""


class FormatVersionError(CheckpointError):
    """A newer kstream has written a record. Facts: path, version, supported."""


class IntervalChangedError(CheckpointError):
    """The batch interval differs from the one the checkpoint was written with. Facts: stored_ms, given_ms."""


class WindowChangedError(CheckpointError):
    """A window with an inverse has another duration than its stored totals. Facts: path, stored_ms, given_ms, streams (their state ids)."""


class GraphNotRestoredError(CheckpointError):
    """The graph that recovery=graph has stored cannot be restored. Facts: path, reason."""


class MissingPlanError(CheckpointError):
    """A plan was removed, and the records of its batch are in no other plan. Facts: path, times (ms, up to 5), skipped (in words)."""


class StreamVanishedError(CheckpointError):
    """The checkpoint has offsets of streams that the job no longer has. Facts: path, streams (their names in words `dropped:…`)."""


class OutputVanishedError(CheckpointError):
    """A pending batch was planned for an output that the job no longer has. Facts: path, outputs."""


class OutputChangedError(CheckpointError):
    """An exactly-once output has found in its sink what does not fit the batch or the checkpoint. Fact: output."""


class TopicsChangedError(CheckpointError):
    """A stream reads none of the topics whose offsets the checkpoint has for it: probably the checkpoint of another job.

    Facts: path, streams (their names in words `topics:…`).
    """


class NotRecoverableError(CheckpointError):
    """An input stream cannot be restored from a checkpoint at all."""


class FencedError(KStreamError):
    """Another driver has taken over the checkpoint. This driver submits no more batches. Facts: path, epoch, newer_epoch."""


class StateError(KStreamError):
    """A call of a key's State is not allowed now: there is no state, it was removed, or it is timing out. Facts: call."""


class StateNotStorableError(KStreamError):
    """A key or its state cannot be encoded as bytes, or a partition has too many states. Facts: key (repr), reason."""


class MissingDependencyError(KStreamError):
    """An optional part is not installed. Facts: package, install."""


class JavaNotFoundError(KStreamError):
    """No Java that Spark can run on was found. Facts: looked_at, minimum."""


class JvmLostError(KStreamError):
    """Spark's JVM has ended while the context was running. This process can run no batch any more.

    Facts: pid (None under spark-submit), status (None if unknown; minus the number of the signal that has killed it).
    """


_WHERE = "__kstream_where__"
_WORKER_TRACEBACK = "__kstream_worker_traceback__"
_RAISED = "__kstream_raised__"
_TASK = "__kstream_task__"
_REPORTED = "__kstream_reported__"
LOGGED_ERROR = "logged_error"
"""The field of a log record with an error that is in the message already. Only who asks for tracebacks gets that of the error."""


_LONGEST_TRACEBACK, _LONGEST_LINE = 100_000, 10_000
"""The characters that listeners get of a traceback, and of an error in one line."""


def add_note(error: BaseException, where: str) -> None:
    """Add the origin of an error in the user's streams to the error, as a note. Later calls for the same error do nothing.

    A traceback of Python 3.10 does not show notes. They are in `error.__notes__` there, too.

    Args:
        error: the error.
        where: the origin, such as the output operation and the batch.
    """
    if getattr(error, _WHERE, None) is not None:
        return
    task = task_of(error)
    _note(error, _WHERE, f"{where}: {task}" if task else where)


def note_task(error: BaseException, task: str) -> None:
    """Set what is known of the operation and the record of an error of a task, in words. `add_note` adds it to the origin."""
    with suppress(AttributeError):  # an exception with slots
        setattr(error, _TASK, task)


def task_of(error: BaseException) -> str:
    """Return the words of `note_task`; "" for an error that was not raised in a task, or where nothing is known."""
    return getattr(error, _TASK, "")


def add_worker_traceback(error: BaseException, text: str, raised: str = "") -> None:
    """Add the traceback of a Python worker to an error, as a note.

    Args:
        error: the error.
        text: the traceback. The actual error is its last exception.
        raised: the type and the message of that exception, as the worker has named them; "" if they are only in the traceback.
    """
    _note(error, _WORKER_TRACEBACK, text)
    if raised:
        with suppress(AttributeError):  # an exception with slots
            setattr(error, _RAISED, raised)


def _note(error: BaseException, key: str, note: str) -> None:
    """Add a note to an error, and set it as the attribute `key`. Does nothing if the error cannot have attributes."""
    try:
        setattr(error, key, note)
        setattr(error, "__notes__", [*getattr(error, "__notes__", ()), note])  # noqa: B010 – Python 3.10 has no add_note
    except AttributeError:  # an exception with slots
        return


def note_reported(error: BaseException) -> None:
    """Note that an error is in the log, and that `awaitTermination` raises it."""
    with suppress(AttributeError):
        setattr(error, _REPORTED, True)


def is_reported(error: BaseException) -> bool:
    return getattr(error, _REPORTED, False)


def task_traceback(error: BaseException) -> str:
    """Return the traceback of the worker that raised an error; "" for an error that was not raised in a task."""
    return getattr(error, _WORKER_TRACEBACK, "")


def raised_in_task(error: BaseException) -> str:
    """Return the type and the first line of the message of the exception of a worker; "" for an error that was not raised in a task."""
    told = task_traceback(error)
    return _type_and_line(getattr(error, _RAISED, "") or last_exception(told)) or told.rpartition("\n")[2]


def last_exception(traceback: str) -> str:
    """Return the last exception in the text of a traceback: its type with all lines of its message and of its notes; "" without one.

    A message may have any lines, also such as end a traceback. So the exception begins with the first line that is not indented.
    """
    lines = traceback.split("\n")
    begin = max((i for i, line in enumerate(lines) if line.startswith(BEGIN)), default=0)
    first = next((i for i in range(begin + 1, len(lines)) if lines[i][:1].strip()), None)
    return "" if first is None else "\n".join(lines[first:]).rstrip()


def _type_and_line(exception: str) -> str:
    """Return the type of an exception and the first line of its message, from the text of `last_exception`."""
    first = first_line(exception)
    if first.endswith(":"):  # the message begins with an empty line
        return f"{first} {first_line(exception.partition(':')[2])}".rstrip(" :")
    return first


def first_line(text: str) -> str:
    """Return the first line of a text that has more than white space; "" without one. Whatever may end a line ends it."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def is_of_a_task(error: BaseException) -> bool:
    """Return whether an error was raised in a worker. What such an error says of a store or of brokers is not said by this driver."""
    return bool(task_traceback(error))


def where_of(error: BaseException) -> str:
    """Return the note of `add_note`; "" without one."""
    return getattr(error, _WHERE, "")


def in_a_line(error: BaseException) -> str:
    """Return an error in one line without secrets, for the log. The whole of it is in the log at DEBUG.

    The line is the type and the first line of the message, of a worker's exception if one is the cause. An error of kstream about what the
    worker said, such as a module that is missing there, has the remedy. So it is told itself.
    """
    return _without_secrets(error, _whole_line(error))


def _whole_line(error: BaseException) -> str:
    """Return the line of `in_a_line`, with what may be a secret."""
    raised = raised_in_task(error)
    if raised and (not isinstance(error, KStreamError) or type(error).__name__ in raised.partition(":")[0]):
        return raised
    if type(error).__name__ in FROM_SPARK:
        return _for_a_person(error)
    first = first_line(str(error))
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error, for listeners. That of a task has the driver's frames, the worker's traceback and the origin.

    Spark's error for the same failure is left out: it repeats the worker's traceback, among some hundred lines of the JVM. It is in
    `error.__cause__`, and its text in the log at DEBUG. An error of the JVM alone keeps its whole text.

    Listeners keep it for many batches, and a message may hold a whole record. So of a text of more than 100,000 characters the middle is
    left out.
    """
    in_task = task_traceback(error)
    if not in_task:
        return _without_middle("".join(traceback.format_exception(error)).rstrip(), _LONGEST_TRACEBACK, "\n")
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    on_driver = [f"Traceback (most recent call last):\n{frames}"] if frames else []
    text = "\n".join([*on_driver, _whole_line(error), "", "In the task:", in_task, where_of(error)]).rstrip()
    return _without_middle(text, _LONGEST_TRACEBACK, "\n")


def with_record(error: BaseException) -> str:
    """Return an error in one line, with what is known of its operation and its record.

    Listeners keep it. So of more than 10,000 characters the middle is left out.
    """
    task = task_of(error)
    line = _whole_line(error)
    return _without_middle(f"{line} ({task})" if task else line, _LONGEST_LINE, " ")


def _without_middle(text: str, most: int, gap: str) -> str:
    """Return the beginning and the end of a text of more than `most` characters, with the number of those left out between two gaps."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    return f"{text[: most // 2]}{gap}… {left_out:,} characters are left out …{gap}{text[-(most // 2) :]}"


FROM_SPARK = ("Py4JJavaError", "PythonException", "SparkRuntimeException")
"""The names of the types of errors that Spark raises for what happened in the JVM or in a worker."""
_RAISED_IN_JVM = re.compile(r"An error occurred while calling [^\n]*\n: (?:[\w$]+\.)*(?P<raised>[\w$]+(?:: [^\n]+)?)")
"""py4j's words, and in the next line the error. Spark 3.5 also has the task there, and its executor."""
BEGIN = "Traceback (most recent call last):"
_BEHIND_WORKER = re.compile(r"\n(?:\tat |\s*SQLSTATE: |JVM stacktrace:|Driver stacktrace:|kstream-failure: )")
"""What follows the words of a worker in the text of Spark's error: the JVM's words, or the line of a `WorkerFailure`."""


def one_line(error: BaseException) -> str:
    """Return an error in one line without secrets, for a person: a KStreamError without its type, another error with it.

    For an error that Spark carries, it is the message of the Python worker.
    """
    return _without_secrets(error, _for_a_person(error))


def _for_a_person(error: BaseException) -> str:
    """Return the line of `one_line`, with what may be a secret."""
    if isinstance(error, KStreamError):
        return _joined(str(error))
    text = str(error)
    if type(error).__name__ in FROM_SPARK:
        if raised := raised_in_task(error) or _type_and_line(last_exception(_worker_words(text))):
            kind, colon, message = raised.partition(": ")
            return _joined(f"{kind.rpartition('.')[2]} in a task{colon}{message}")
        if of_jvm := _RAISED_IN_JVM.match(text):
            return _joined(of_jvm["raised"])
    first = first_line(text)
    return _joined(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def _worker_words(text: str) -> str:
    """Return the traceback of a worker in the text of Spark's error; "" if no worker raised."""
    _, begin, rest = text.partition(BEGIN)
    return begin + _BEHIND_WORKER.split(rest, maxsplit=1)[0] if "PythonException" in text else ""


def _without_secrets(error: BaseException, line: str) -> str:
    """Return the line of an error without what may be a secret. kstream's own words are none, and only an address in them may have one."""
    return without_logins(line) if isinstance(error, KStreamError) else line_without_secrets(line)


def _joined(text: str) -> str:
    """Return the text with single spaces for all white space."""
    return " ".join(text.split())


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL`; `signal 35` of one without a name, as most real-time signals are."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
