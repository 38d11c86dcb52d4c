"""Every exception of kstream's core, one tree.

    KStreamError
    ├── ConfigurationError            a setting has a value that cannot work
    ├── IllegalStateError             a call came in the wrong phase of life (start after stop …)
    ├── ListenerStopError             stop() was called from inside a listener
    ├── BatchError                    something about one batch
    │   ├── PlanFailedError           an input could not be planned; no offset moved
    │   └── NoRDDError                an operator needed an RDD and its parent had none
    ├── DataLossError                 data that a batch was to read is gone for good
    │   ├── FileLostError             a planned file has been removed, or cut
    │   └── BlocksLostError           received blocks died with the driver that held them
    ├── UnreadableFileError           a file does not hold what its stream reads
    │   └── RecordLengthError         its size is no multiple of the record length
    ├── StorageError                  the store under a checkpoint failed
    │   ├── AlreadyExistsError        create-if-absent found the name taken
    │   ├── MissingFileError          a file does not exist
    │   └── UnsupportedStoreError     the store cannot create-if-absent
    ├── WriteAheadLogError            a record could not be written to a batched write-ahead log
    ├── BlockNotStoredError           a received block could not be kept
    ├── RpcError                      another process of the application could not do a request
    │   ├── RpcRefusedError           it knows no such token
    │   └── RpcUnreachableError       it did not answer
    ├── NotEnoughCoresError           the cluster has not given the cores that receivers need
    ├── NotSerializableError          a function of the user's cannot be pickled, or the graph cannot be stored
    ├── CheckpointError               stored data cannot be used as it is
    │   ├── CorruptRecordError        a record's bytes are not what was written
    │   ├── FormatVersionError        written by a newer kstream
    │   ├── IntervalChangedError      the batch interval differs from the stored one
    │   ├── GraphNotRestoredError     the graph that recovery=graph has stored cannot be made again
    │   ├── MissingPlanError          a plan was removed, and the records of its batch are in no other
    │   ├── StreamVanishedError       offsets are stored of a stream that the job no longer has
    │   ├── TopicsChangedError        a stream reads none of the topics whose offsets are stored for it
    │   └── NotRecoverableError       an input cannot be restored at all (queueStream)
    ├── FencedError                   another driver has taken this checkpoint
    ├── StateError                    a call of a key's State that its condition does not allow
    ├── StateNotStorableError         a key or its state cannot be kept as bytes
    ├── MissingDependencyError        an optional part is not installed
    └── JavaNotFoundError             no Java that Spark can run on

Facts are attributes, the message is made of them: what happened, with which values, what to do.
`retriable` on the class says whether the same call may succeed later. All survive pickling.
"""

from __future__ import annotations

from typing import Any, ClassVar


class KStreamError(Exception):
    """Base of every error kstream raises. `facts` are keyword values, also readable as attributes."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.message, self.facts)

    def __str__(self) -> str:
        return self.message


def _rebuild(cls: type[KStreamError], message: str, facts: dict[str, Any]) -> KStreamError:
    error = cls.__new__(cls)
    KStreamError.__init__(error, message, **facts)
    return error


class ConfigurationError(KStreamError):
    """A setting or an argument has a value that cannot work. Facts: key, value."""


class IllegalStateError(KStreamError):
    """A call came in the wrong phase of a context's life. Facts: state."""


class ListenerStopError(IllegalStateError):
    """stop() was called from inside a StreamingListener, where it would wait for itself."""


class BatchError(KStreamError):
    """Something about one batch. Facts: time (ms)."""


class PlanFailedError(BatchError):
    """The inputs of a batch could not be planned; the next batch starts at the same offsets."""

    retriable = True


class NoRDDError(BatchError):
    """A parent stream had no RDD for a batch time where one is needed. Facts: time."""


class DataLossError(KStreamError):
    """Data that a batch was to read is gone for good."""


class FileLostError(DataLossError):
    """A file of a batch's plan has been removed or cut since. Facts: path, size (as planned), found (its size now, None if gone)."""


class BlocksLostError(DataLossError):
    """Blocks of a batch's plan were held by a driver that is dead. Facts: time (ms), stream, blocks ([id, number of records], …)."""


class UnreadableFileError(KStreamError):
    """A file does not hold what its stream reads. Facts: path."""


class RecordLengthError(UnreadableFileError):
    """A file does not hold a whole number of records. Facts: path, size, record_length."""


class StorageError(KStreamError):
    """The store under a checkpoint failed. Facts: path."""

    retriable = True


class AlreadyExistsError(StorageError):
    """Create-if-absent found the name taken."""

    retriable = False


class MissingFileError(StorageError):
    """A file does not exist."""

    retriable = False


class UnsupportedStoreError(StorageError):
    """The store under this URL cannot create a file only if it is absent."""

    retriable = False


class BlockNotStoredError(KStreamError):
    """A received block could not be kept: its records are not acknowledged. Facts: block, size, free (bytes)."""


class RpcError(KStreamError):
    """Another process of the application could not do a request. Facts: place (host:port)."""


class RpcRefusedError(RpcError):
    """The port belongs to another application, or to an earlier start of this one."""


class RpcUnreachableError(RpcError):
    """No answer: the process is dead, or the network fails. The request may have been done."""

    retriable = True


class NotEnoughCoresError(KStreamError):
    """The cluster has not given the cores that receivers need. Facts: receivers, needed, cores, executors, waited_s."""

    retriable = True


class WriteAheadLogError(KStreamError):
    """A record was not acknowledged by a batched write-ahead log; it may be in it all the same. Facts: time (ms), reason."""


class NotSerializableError(KStreamError):
    """A function for the workers cannot be pickled, or recovery=graph cannot store the graph. Facts: sites (operators and lines)."""


class CheckpointError(KStreamError):
    """The stored data of a checkpoint cannot be used as it is. Facts: path."""


class CorruptRecordError(CheckpointError):
    """A record's bytes are not what was written. Facts: path, reason."""


class FormatVersionError(CheckpointError):
    """A record was written by a newer kstream. Facts: path, version, supported."""


class IntervalChangedError(CheckpointError):
    """The batch interval differs from the one the checkpoint was written with. Facts: stored_ms, given_ms."""


class GraphNotRestoredError(CheckpointError):
    """The graph that recovery=graph has stored cannot be made again. Facts: path, reason."""


class MissingPlanError(CheckpointError):
    """A plan was removed, and the records of its batch are in no other. Facts: path, times (ms, up to 5), skipped (in words)."""


class StreamVanishedError(CheckpointError):
    """The checkpoint has offsets of streams that the job no longer has. Facts: path, streams (as `dropped:…` would name them)."""


class TopicsChangedError(CheckpointError):
    """A stream reads none of the topics whose offsets the checkpoint has for it: probably the checkpoint of another job.

    Facts: path, streams (as `topics:…` would name them).
    """


class NotRecoverableError(CheckpointError):
    """An input stream cannot be restored from a checkpoint at all."""


class FencedError(KStreamError):
    """Another driver has taken this checkpoint; this one submits nothing more. Facts: path, epoch, newer_epoch."""


class StateError(KStreamError):
    """A call of a key's State that its condition does not allow: no state, removed, or timing out. Facts: call."""


class StateNotStorableError(KStreamError):
    """A key or its state cannot be kept as bytes, or the states of a partition are too many for one. Facts: key (repr), reason."""


class MissingDependencyError(KStreamError):
    """An optional part is not installed. Facts: package, install."""


class JavaNotFoundError(KStreamError):
    """No Java that Spark can run on was found. Facts: looked_at, minimum."""


_WHERE = "__kstream_where__"
_WORKER_TRACEBACK = "__kstream_worker_traceback__"


def add_note(error: BaseException, where: str) -> None:
    """Add a note to an error: where in the user's streams it came from. Only the first note counts.

    On Python 3.10 a traceback does not show notes; they are in `error.__notes__` all the same.
    """
    if getattr(error, _WHERE, None) is not None:
        return
    _note(error, _WHERE, where)


def add_worker_traceback(error: BaseException, traceback: str) -> None:
    """Add a note to an error: the traceback of a Python worker, whose last line is the actual error."""
    _note(error, _WORKER_TRACEBACK, traceback)


def _note(error: BaseException, key: str, note: str) -> None:
    try:
        setattr(error, key, note)
        setattr(error, "__notes__", [*getattr(error, "__notes__", ()), note])  # noqa: B010 – Python 3.10 has no add_note
    except AttributeError:  # an exception with slots
        return


def where_of(error: BaseException) -> str:
    """The note of `add_note`; "" without one."""
    return getattr(error, _WHERE, "")


def in_a_line(error: BaseException) -> str:
    """An error in one line: the last one of a worker's traceback, else its type and the first line of its message."""
    traceback: str = getattr(error, _WORKER_TRACEBACK, "")
    if traceback:
        return traceback.splitlines()[-1]
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
