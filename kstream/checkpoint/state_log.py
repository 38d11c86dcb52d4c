"""The checkpoints of state that completions and records of failures name, and the states of streams that are gone."""

from __future__ import annotations

import errno
import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kstream.batch import StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import positive
from kstream.checkpoint.epoch_records import EpochRecords
from kstream.checkpoint.reader import LogContents
from kstream.errors import CorruptRecordError, MissingFileError, StorageError
from kstream.storage import FileStore

logger = logging.getLogger(__name__)

States: TypeAlias = Mapping[str, StateCheckpoint]
"""Id of the state stream → its checkpoint of state."""


def states_fields(states: States) -> dict[str, Any]:
    return {
        stream: {
            "time": state.time.milliseconds,
            "partitions": len(state.files),
            "files": list(state.files),
            "hashing": state.hashing,
            **({} if state.window is None else {"window": state.window.milliseconds}),
        }
        for stream, state in states.items()
    }


def states_of(fields: format.Fields) -> dict[str, StateCheckpoint]:
    """Make the states from their fields: the inverse of `states_fields`."""
    return {stream: _state_of(state) for stream, state in fields.items()}


def _state_of(fields: format.Fields) -> StateCheckpoint:
    """Make one state. ValueError if it names a file that is none of a state: such a file would be read, or deleted."""
    for file in fields["files"]:
        if not names.is_state(file):
            raise ValueError(f"{file!r} is no name of a file in {names.STATE}/")
    window = positive(fields["window"]) if "window" in fields else None
    return StateCheckpoint(Time(fields["time"]), tuple(fields["files"]), fields["hashing"], window)


def _gone_of(fields: format.Fields) -> dict[str, StateCheckpoint]:
    """Make the states that were set aside from the fields of their record."""
    return states_of(fields["states"])


_GONE = EpochRecords(names.GONE_STATES, "gone-states", _gone_of)


def stored_states(store: FileStore, time: Time, plan_epoch: int) -> dict[str, StateCheckpoint]:
    """Read the states that a batch's completion names; empty without a completion. Blocks: one read. CorruptRecordError, StorageError."""
    return states_in(store, names.done(time, plan_epoch), time)


def states_in(store: FileStore, name: str, time: Time) -> dict[str, StateCheckpoint]:
    """Read the states that a completion or the record of a failure names; empty without that record. Blocks: one read.

    Raises:
        CorruptRecordError: the record is damaged.
        StorageError: the store failed, or only another user may read the record.
    """
    try:
        data = store.read(name)
    except MissingFileError:
        return {}
    except StorageError as e:
        if e.facts.get("errno") != errno.EACCES:
            raise
        remedy = "run the job as the user who has written it, or give its files to this user (chown)"
        raise StorageError(f"{e.message}. The records of failed batches are private: {remedy}", **e.facts) from e
    named = {"time": time.milliseconds}
    return format.decode(name.partition("/")[0], data, store.path(name), lambda fields: states_of(fields.get("states", {})), named)


def newest_states(store: FileStore, streams: Container[str]) -> dict[str, list[StateCheckpoint]]:
    """Read what completions say of the newest files of state, without reading the log. Blocks: two listings, and those completions.

    Args:
        store: the checkpoint.
        streams: the ids of the streams that are asked for.

    Returns:
        Stream → the states that the completions of the batch of its newest files name; empty if none names any, as after a failed batch.
        Streams without files are left out.

    Raises:
        CorruptRecordError: a record is damaged.
        StorageError: the store failed.
    """
    newest: dict[str, Time] = {}
    for parsed in map(names.parse_state, store.list(names.STATE)):
        if parsed is not None and parsed[2] in streams:
            time, _, stream = parsed
            newest[stream] = max(time, newest.get(stream, time))
    found: dict[str, list[StateCheckpoint]] = {stream: [] for stream in newest}
    for name in store.list(names.DONE) if newest else ():
        key = names.parse_key(name)
        if key is not None and key[0] in newest.values():
            states = states_in(store, f"{names.DONE}/{name}", key[0])
            for stream in newest.keys() & states.keys():
                if states[stream].time == newest[stream]:
                    found[stream].append(states[stream])
    return found


@dataclass(frozen=True, slots=True)
class StoredStates:
    """The checkpoints of state that a driver finds at its start."""

    checkpoints: Mapping[str, list[StateCheckpoint]]
    """Per stream the checkpoints that completions and records of failures name, and whose files all exist, oldest first."""
    gone: States
    """The states that were set aside: an earlier driver's graph did not have their streams."""
    gone_by: tuple[int, ...]
    """The epochs of the records that name `gone`."""
    unnamed: tuple[tuple[str, Time, int], ...]
    """The files that no completion and no record of set-aside states names: name, batch time, epoch of the writer."""


def read_states(store: FileStore, contents: LogContents, wanted: bool) -> StoredStates:
    """Find the checkpoints of state. Blocks: one listing; if there is state, another one and one read per completion and failure.

    Args:
        store: the checkpoint.
        contents: the contents of the log.
        wanted: whether the graph has streams with state; then completions are read in any case.

    Raises:
        CorruptRecordError: a stream has checkpoints, and none of them is whole.
    """
    files = {name: parsed for name, parsed in ((n, names.parse_state(n)) for n in store.list(names.STATE)) if parsed is not None}
    if not files and not wanted:
        return StoredStates({}, {}, (), ())
    found: dict[str, list[StateCheckpoint]] = {}
    records = [(names.done(time, contents.plans[time].epoch), time) for time in sorted(contents.done)]
    for name, time in [*records, *_failures(store, contents)]:
        for stream, state in states_in(store, name, time).items():
            if state not in found.setdefault(stream, []):
                found[stream].append(state)
    there = {f"{names.STATE}/{name}": (time, epoch) for name, (time, epoch, _) in files.items()}
    checkpoints = {stream: _whole(store, stream, states, set(there)) for stream, states in found.items()}
    gone, gone_by = _read_gone(store)
    named = {file for states in [*found.values(), gone.values()] for state in states for file in state.files}
    return StoredStates(checkpoints, gone, gone_by, tuple((file, *there[file]) for file in sorted(there.keys() - named)))


def _failures(store: FileStore, contents: LogContents) -> list[tuple[str, Time]]:
    """Return the names of the records of failures of current plans, with their batches. One listing, if any batch has failed."""
    keys = [(name, names.parse_key(name)) for name in (store.list(names.FAILED) if contents.failures else ())]
    current = {(time, contents.plans[time].epoch) for time in contents.failures}
    return [(f"{names.FAILED}/{name}", key[0]) for name, key in keys if key is not None and (key[0], key[1][0]) in current]


def _whole(store: FileStore, stream: str, states: Iterable[StateCheckpoint], there: set[str]) -> list[StateCheckpoint]:
    """Return the checkpoints of a stream whose files all exist, oldest first. Warn if the newest is not among them.

    Raises:
        CorruptRecordError: there are checkpoints, and each lacks a file.
    """
    by_time = sorted(states, key=lambda state: state.time)
    whole = [state for state in by_time if there.issuperset(state.files)]
    if by_time and not whole:
        missing = sorted(set(by_time[-1].files) - there)[0]
        raise CorruptRecordError(
            f"{store.path(missing)} is missing: it holds a part of the state of stream {stream} at batch {by_time[-1].time}, and no older "
            "checkpoint of that state is left. Restore the file from a copy, or start with a new checkpoint directory.",
            path=store.path(missing),
            reason="missing",
        )
    if by_time and whole[-1] is not by_time[-1]:
        logger.warning(
            "stream %s: its state at batch %s is not whole; the stream continues from that at batch %s",
            stream,
            by_time[-1].time,
            whole[-1].time,
        )
    return whole


def _read_gone(store: FileStore) -> tuple[dict[str, StateCheckpoint], tuple[int, ...]]:
    """Read the states that were set aside, and the epochs of the records that name them."""
    epochs = _GONE.epochs(store)
    gone: dict[str, StateCheckpoint] = {}
    for epoch in epochs:
        states = _GONE.read(store, epoch)
        if states is not None:  # else its states had been forgotten, and their files deleted, before the record was
            gone.update(states)
    return gone, tuple(epochs)


def set_aside(store: FileStore, epoch: int, gone: States) -> None:
    """Record the states whose streams the driver of `epoch` does not have, because the next driver may have them. Blocks; StorageError."""
    _GONE.create(store, epoch, {"states": states_fields(gone)})


def forget_gone(store: FileStore, epochs: Iterable[int], states: Iterable[StateCheckpoint]) -> None:
    """Delete set-aside states: first their files, then the records that name them. Blocks; StorageError.

    Args:
        store: the checkpoint.
        epochs: the epochs of the records.
        states: the states whose files are deleted.
    """
    for state in states:
        for file in state.files:
            store.delete(file)
    for epoch in epochs:
        store.delete(names.of_epoch(names.GONE_STATES, epoch))
