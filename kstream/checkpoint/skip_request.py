"""SkipRequest: a person asks, through the checkpoint, that a batch leave a record out.

    skipped/<time>-<plan's>-<stream>-<partition>-<offset>-<topic>      created by `kstream skip`; never changed and never removed

The plan and its ranges do not change. A request is bound to its plan, by batch time and epoch: a driver that adopts the plan adopts the
request, and of a plan that is superseded it means nothing. Which records a batch has really left out stands in its completion. A request
that came too late is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kstream.batch import SkippedRecord
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import moment
from kstream.errors import AlreadyExistsError, CorruptRecordError
from kstream.storage import FileStore

_KIND = "skip"


@dataclass(frozen=True, slots=True)
class SkipRequest:
    """A request to leave a record out of a batch.

    Attributes:
        time: the batch.
        epoch: the epoch of its plan.
        record: the record.
        at_ms: when it was asked for, in milliseconds since the Unix epoch.
        asked_by: who asked, for people: host and process.
        reason: why, in the words of the person; may be empty.
    """

    time: Time
    epoch: int
    record: SkippedRecord
    at_ms: int
    asked_by: str
    reason: str = ""

    @property
    def name(self) -> str:
        record = self.record
        return names.skipped(self.time, self.epoch, record.stream, record.partition, record.offset, record.topic)


def ask_to_skip(store: FileStore, request: SkipRequest) -> SkipRequest:
    """Store a request. Idempotent: an earlier request for the record stays. Blocks: one create.

    Returns:
        The request that is stored.

    Raises:
        CorruptRecordError: an earlier request is damaged.
        StorageError: the store failed; the request may be stored or not.
    """
    record = request.record
    fields = {
        "time": request.time.milliseconds,
        "epoch": request.epoch,
        **SkippedRecord(*record.place).to_json(),
        "at": request.at_ms,
        "asked_by": request.asked_by,
        "reason": request.reason,
    }
    try:
        store.create(request.name, format.encode(_KIND, fields))
        return request
    except AlreadyExistsError:
        return _read(store, request.name)


def read_requests(store: FileStore, wanted: Callable[[Time, int], bool]) -> list[SkipRequest]:
    """Read the requests for some plans, by batch time. Blocks: one listing, and one read for each request that is wanted.

    Args:
        store: the checkpoint.
        wanted: wanted(time, epoch) returns whether the requests for this plan are read.

    Raises:
        CorruptRecordError: a request is damaged. Its batch must not run, because nobody knows what it shall leave out.
        StorageError: the store failed.
    """
    found: list[SkipRequest] = []
    for name in sorted(store.list(names.SKIPPED)):
        key = names.parse_skipped(name)
        if key is not None and wanted(key[0], key[1][0]):
            found.append(_read(store, f"{names.SKIPPED}/{name}"))
    return found


def _read(store: FileStore, name: str) -> SkipRequest:
    """Read one request. CorruptRecordError if it is damaged, or that of another record."""
    request = format.decode(_KIND, store.read(name), store.path(name), _request_of)
    if request.name != name:
        record = request.record
        inside = {
            "time": request.time.milliseconds,
            "epoch": request.epoch,
            "stream": record.stream,
            "partition": record.partition,
            "offset": record.offset,
        }
        time, numbers = names.key_of(name.rpartition("-")[0])
        format.check_name(store.path(name), inside, dict(zip(inside, (time.milliseconds, *numbers), strict=True)))
        reason = f"holds a request for topic {request.record.topic}, of which its name is not"
        raise CorruptRecordError(f"{store.path(name)} {reason}: move it out of the checkpoint.", path=store.path(name), reason=reason)
    return request


def _request_of(fields: format.Fields) -> SkipRequest:
    record, at_ms = SkippedRecord.from_json(fields), moment(fields["at"])
    return SkipRequest(Time(fields["time"]), fields["epoch"], record, at_ms, fields["asked_by"], fields["reason"])


def by_stream(records: Iterable[SkippedRecord], numbers: Mapping[int, int] | None) -> dict[int, list[SkippedRecord]]:
    """Return the records by the number that their stream has now. Pure. Records of streams that are gone are left out.

    Args:
        records: the records, with the numbers of their plan.
        numbers: number in the plan → number now; None if they are the same.
    """
    found: dict[int, list[SkippedRecord]] = {}
    for record in records:
        number = record.stream if numbers is None else numbers.get(record.stream)
        if number is not None:
            found.setdefault(number, []).append(record)
    return found
