"""The names of records. Numbers have a fixed width, so that sorted names are sorted times. Only this module makes and parses names.

The records under a checkpoint's path:

    meta                              format, zero time, batch interval
    epoch-N                           one per start of a driver; the highest is the writer, lower ones are fenced
    plans/<time>-<epoch>              the data that each input gives to the batch; created before the batch runs
    done/<time>-<epoch of its plan>   completion: the batch's jobs have all succeeded; record counts of each input, files of its state
    failed/<time>-<plan's>-<run's>    the batch failed in that driver's life; files of its state, which was computed nevertheless
    given-up/<time>-<epoch>           the ledger: the batch failed too often and is never run again
    lost/<time>-<plan's>-<run's>      the ledger: records that were gone before the batch could read them, or that it has left out
    skipped/<time>-<plan's>-…         asks the batch to leave a record out (see skip_request.py)
    acknowledged/<folder>-<name>      a person has seen this entry of the ledger (see history.py)
    forgotten/<time>-<epoch>          plans that --forget-batch set aside; epoch 0: the plan was missing, and the user continues without it
    history/<first>-<last>-<epoch>    plans that no restart needs any more, packed (see history.py)
    settled/<after>-<until>-<epoch>   plans above an unfinished batch that were removed, as an interval (see settled.py)
    adopted/<epoch>                   the plans that this epoch's driver found: any other plan of an older epoch never ran
    state/<time>-<epoch>-<stream>-<partition>-<nonce>
                                      a partition of a stream's state (see state_format.py); it counts if a completion or failure names it
    gone-states/<epoch>               states whose streams that driver's program did not have
    kept-offsets/<epoch>              offsets of partitions that the job no longer reads (see input_records.py)
    interval-changes/<epoch>          a changed batch interval (see interval_change.py)
    connections                       parameters of the inputs, without secrets, for commands (see input_records.py)
    status/<epoch>                    how that driver is, renewed by it (see driver_status.py)
    stop/<epoch>                      asks that driver to stop (see stop_request.py)
    assignments/<generation>          which task of a continuous stream reads which partitions (see kstream.continuous)
    positions/<epoch>                 how far that driver's continuous tasks had come, for people (see kstream.continuous)
    graph                             only under recovery=graph: the operators and the user's functions (see stored_graph.py)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from kstream.batch_time import Time

META = "meta"
GRAPH = "graph"
CONNECTIONS = "connections"
PLANS = "plans"
DONE = "done"
FAILED = "failed"
GIVEN_UP = "given-up"
LOST = "lost"
SKIPPED = "skipped"
ACKNOWLEDGED = "acknowledged"
HISTORY = "history"
FORGOTTEN = "forgotten"
ADOPTED = "adopted"
SETTLED = "settled"
STATE = "state"
GONE_STATES = "gone-states"
KEPT_OFFSETS = "kept-offsets"
STATUS = "status"
STOP = "stop"
INTERVAL_CHANGES = "interval-changes"
ASSIGNMENTS = "assignments"
POSITIONS = "positions"

_STATE = re.compile(r"(\d{15})-(\d{6,})-(.+)-(\d{5,})-([0-9a-f]+)")
_IN_STATE = re.compile(rf"{STATE}/[\w~%-][\w~%.-]*", re.ASCII)


def key(time: Time, *numbers: int) -> str:
    """Return `<time>-<epoch>…`: the name of a record without its folder."""
    return "-".join([f"{time.milliseconds:015d}", *(f"{number:06d}" for number in numbers)])


def parse_key(name: str) -> tuple[Time, tuple[int, ...]] | None:
    """Parse the time and the other numbers of a key, such as epochs; None for any other file in the folder."""
    parts = name.split("-")
    return None if len(parts) < 2 or not all(part.isdecimal() for part in parts) else key_of(name)


def key_of(name: str) -> tuple[Time, tuple[int, ...]]:
    """Return the time and the other numbers of a key, with or without its folder. ValueError for any other name."""
    first, *others = map(int, name.rpartition("/")[2].split("-"))
    return Time(first), tuple(others)


def plan(time: Time, epoch: int) -> str:
    """Return the name of a plan, by its batch time and epoch."""
    return f"{PLANS}/{key(time, epoch)}"


def done(time: Time, epoch: int) -> str:
    """Return the name of a completion. `epoch` is that of the plan."""
    return f"{DONE}/{key(time, epoch)}"


def failed(time: Time, plan_epoch: int, run_epoch: int) -> str:
    """Return the name of a failure record: epoch of the plan, and epoch of the driver that ran the batch."""
    return f"{FAILED}/{key(time, plan_epoch, run_epoch)}"


def given_up(time: Time, epoch: int) -> str:
    """Return the name of the ledger's record about a batch that was given up. `epoch` is that of the plan."""
    return f"{GIVEN_UP}/{key(time, epoch)}"


def lost(time: Time, plan_epoch: int, run_epoch: int) -> str:
    """Return the name of the ledger's record about lost data: epoch of the plan, and epoch of the driver that ran the batch."""
    return f"{LOST}/{key(time, plan_epoch, run_epoch)}"


def skipped(time: Time, plan_epoch: int, stream: int, partition: int, offset: int, topic: str) -> str:
    """Return the name of a request to leave a record out. The topic is a digest, because its name may be longer than a file's."""
    return f"{SKIPPED}/{key(time, plan_epoch, stream, partition, offset)}-{hashlib.sha256(topic.encode()).hexdigest()[:12]}"


def parse_skipped(name: str) -> tuple[Time, tuple[int, ...]] | None:
    """Parse the batch time, and epoch, stream, partition and offset, of a request's name; None for any other file in the folder."""
    found = parse_key(name.rpartition("-")[0])
    return found if found is not None and len(found[1]) == 4 else None


def acknowledged(entry: str) -> str:
    """Return the name of the acknowledgement of an entry of the ledger, by the name of the entry."""
    return f"{ACKNOWLEDGED}/{entry.replace('/', '-', 1)}"


def history(first: Time, last: Time, epoch: int) -> str:
    """Return the name of a history segment: batch times of its first and last plan, and epoch of its writer."""
    return f"{HISTORY}/{key(first)}-{key(last)}-{epoch:06d}"


def settled(after: Time, until: Time, epoch: int) -> str:
    """Return the name of a settled interval: the batch times between which it lies, and the epoch of its writer."""
    return f"{SETTLED}/{key(after)}-{key(until)}-{epoch:06d}"


def of_epoch(folder: str, epoch: int) -> str:
    """Return the name of the record of the driver of `epoch` in a folder of which each driver has one record."""
    return f"{folder}/{epoch:06d}"


def assignment(generation: int) -> str:
    """Return the name of an assignment of continuous processing."""
    return f"{ASSIGNMENTS}/{generation:010d}"


def newest_generation(listed: Iterable[str]) -> int | None:
    """Return the highest generation in the folder of assignments; None if there is none. `listed`: the names in the folder."""
    return max((int(name) for name in listed if name.isdecimal()), default=None)


def epochs_of(listed: Iterable[str]) -> list[int]:
    """Return the epochs of the records in a folder whose names are only an epoch, sorted. Other files are left out.

    Args:
        listed: the names in the folder.
    """
    return sorted(int(name) for name in listed if name.isdecimal())


def state_prefix(time: Time, epoch: int, stream: str) -> str:
    """Return the beginning of the names of a stream's state files.

    Args:
        time: the batch.
        epoch: the epoch of the driver that writes them.
        stream: the id of the state stream.
    """
    return f"{STATE}/{key(time, epoch)}-{quote(stream, safe='')}"


def state(prefix: str, partition: int, nonce: str) -> str:
    """Return the name of the file of one partition. The nonce differs for each attempt of its task."""
    return f"{prefix}-{partition:05d}-{nonce}"


def parse_state(name: str) -> tuple[Time, int, str] | None:
    """Parse the time, the epoch and the stream of a state file's name; None for any other file in the folder."""
    match = _STATE.fullmatch(name)
    return None if match is None else (Time(int(match[1])), int(match[2]), unquote(match[3]))


def is_state(name: str) -> bool:
    """Return whether a name that a record holds is one of a file in the folder of states."""
    return _IN_STATE.fullmatch(name) is not None


def epoch(number: int) -> str:
    """Return the name of the record of an epoch."""
    return f"epoch-{number}"


def parse_epoch(name: str) -> int | None:
    """Parse the epoch of an epoch record's name; None for any other file."""
    prefix, _, number = name.partition("-")
    return int(number) if prefix == "epoch" and number.isdecimal() else None
