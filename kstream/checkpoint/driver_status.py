"""DriverStatus: how a driver and its batches are, as the driver itself says. A record of it in the checkpoint is for people and monitors.

    status/<epoch>    written by the driver of `epoch`, again and again, in place of the one before

No driver reads the record, and nothing depends on it. It holds no secret: an error whose text may hold one is only named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kstream.batch import SlowestOutput
from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import moment, positive
from kstream.checkpoint.epoch_records import EpochRecords
from kstream.storage import FileStore

AFTER_AN_ERROR = "after an error"
"""The end of a driver after which its supervisor starts the next one."""
RECENT = 10
"""The number of batches whose figures a record has: enough for a rate, and a record stays below 8 KB."""
RENEWAL_MS = 20_000
"""The milliseconds between two writes of a record. On a local disk that and the looks for a request to stop take 3 % of the time that the
plan and the completion of a batch a second take."""
GONE_MS = 3 * RENEWAL_MS
"""A record that is older was not renewed three times: its driver is dead, suspended, or cannot reach the store."""


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """A batch that has ended. Times are milliseconds; a delay is −1 if it is not known.

    `record_errors` are the records that the errors policies have left out. `figures` are what was measured, by their names in the JSON log.
    `slowest` is the output operation that took the longest; None if it is not known, and in a record of an older kstream.
    """

    time: Time
    records: int
    scheduling_delay_ms: int
    processing_ms: int
    failed: bool = False
    record_errors: int = 0
    figures: Mapping[str, int] = field(default_factory=dict[str, int])
    slowest: SlowestOutput | None = None


@dataclass(frozen=True, slots=True)
class StreamLag:
    """How far an input is behind the ends of its logs.

    Attributes:
        stream: the stream id.
        description: what the input reads.
        records: the records after the last batch that has succeeded without a gap, up to the ends of the logs at `at_ms`.
        limited_by: why the newest plan did not take them all, as in `kstream.offsets.admission_control.ReadLimit`; None if it did.
        unplanned: those of the records that no batch has. A record of an older kstream does not tell it: it counted these alone.
        at_ms: when the newest batch was planned, in milliseconds since the Unix epoch; None in a record of an older kstream.
    """

    stream: int
    description: str
    records: int
    limited_by: str | None = None
    unplanned: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error of a driver.

    Attributes:
        at_ms: when, in milliseconds since the Unix epoch.
        text: the error in one line.
        batch: the batch; None if the error is of none.
        operation: the output operation that failed, such as `0, pprint at job.py:7`; None if the error is of none.
    """

    at_ms: int
    text: str
    batch: Time | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which no batch can be planned, or no planned batch can start, because brokers or the store are away.

    Attributes:
        since_ms: when the first try began that met it, in milliseconds since the Unix epoch.
        until_ms: up to when the driver waits before it reports the error, in milliseconds since the Unix epoch.
        text: the newest error in one line.
        first: the first batch that was not planned; None if only planned ones could not start.
    """

    since_ms: int
    until_ms: int
    text: str
    first: Time | None = None

    def ms(self, now_ms: int) -> int:
        """Return for how long the outage has lasted, in milliseconds; `now_ms` is the moment, since the Unix epoch."""
        return max(0, now_ms - self.since_ms)


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The status of a driver at one moment. Moments are milliseconds since the Unix epoch, by the clock of the driver.

    Attributes:
        application: the name of the application.
        epoch: the epoch of the driver; 0 without a checkpoint directory.
        host, pid: where the driver runs.
        started_ms: when the context was started.
        written_ms: the moment of this status.
        interval: the batch interval.
        last_planned: the newest batch with a durable plan, of this driver or an earlier one; None before the first.
        unfinished: the number of planned batches that have not succeeded.
        oldest_unfinished: the oldest of them; None without one.
        failed: how many of them have failed, and no retry is left.
        waiting: how many of them wait: between two tries, or for an earlier batch that has failed.
        recent: the last batches that ended, oldest first, at most RECENT.
        lag: the lag of each input for which it is known.
        rates: stream id → the rate that back-pressure has computed last, in records a second; empty before the first.
        last_error: the last error; None without one.
        state_error: why the state cannot be written, in one line; None if it can.
        outage: the outage of brokers or of the store that lasts; None without one, and once the driver has ended.
        ended: how the driver has ended: `gracefully`, `at once`, `after an error`, `fenced` or `start failed`; None while it lives. After
            a request to stop an error is no reason: it is `gracefully` or `at once` then.
        metrics_url: where the driver shows its metrics; None without a port for them.
        ui_url: where it shows its page, without a token; None without one.
        process: the mark of its process, as in `kstream.checkpoint.sign_of_life`; None where the system does not tell.
        supervised: whether a supervisor starts the next driver after an error.
    """

    application: str
    epoch: int
    host: str
    pid: int
    started_ms: int
    written_ms: int
    interval: Duration
    last_planned: Time | None = None
    unfinished: int = 0
    oldest_unfinished: Time | None = None
    failed: int = 0
    waiting: int = 0
    recent: Sequence[BatchFigures] = ()
    lag: Sequence[StreamLag] = ()
    rates: Mapping[int, int] = field(default_factory=dict[int, int])
    last_error: LastError | None = None
    state_error: str | None = None
    outage: Outage | None = None
    ended: str | None = None
    metrics_url: str | None = None
    ui_url: str | None = None
    process: str | None = None
    supervised: bool = False

    @property
    def is_followed(self) -> bool:
        """Whether the driver has ended, and its supervisor starts the next one if a restart can help."""
        return self.supervised and self.ended in (AFTER_AN_ERROR, "start failed")

    @property
    def last_ended(self) -> BatchFigures | None:
        """The batch that ended last, in success or failure; None before the first."""
        return self.recent[-1] if self.recent else None

    @property
    def error_settled(self) -> str | None:
        """What shows that the last error is over, such as `the batch has succeeded since`; None if nothing shows it."""
        error, succeeded = self.last_error, [batch.time for batch in self.recent if not batch.failed]
        if error is None:
            return None
        if error.batch is not None:
            return "the batch has succeeded since" if error.batch in succeeded else None
        return "a later batch has succeeded since" if any(time.milliseconds > error.at_ms for time in succeeded) else None

    @property
    def input_rate(self) -> float | None:
        """The records per second of the last batches; None before the first."""
        return sum(batch.records for batch in self.recent) / (len(self.recent) * self.interval.seconds) if self.recent else None

    @property
    def record_errors(self) -> int:
        """The records that the errors policies have left out of the last batches."""
        return sum(batch.record_errors for batch in self.recent)

    @property
    def last_slow(self) -> BatchFigures | None:
        """The newest batch that took longer than its interval; None if none of the last ones did."""
        return next((batch for batch in reversed(self.recent) if batch.processing_ms > self.interval.milliseconds), None)

    @property
    def processing_rate(self) -> float | None:
        """The records per second of processing in the last batches; None if they took no time."""
        seconds = sum(max(batch.processing_ms, 0) for batch in self.recent) / 1000
        return sum(batch.records for batch in self.recent) / seconds if seconds > 0 else None

    def seconds_behind(self, now_ms: int) -> float:
        """Return for how long the oldest batch has been due that has not succeeded. A batch is due at its batch time; see `batches_behind`.

        Args:
            now_ms: the moment, in milliseconds since the Unix epoch.
        """
        due = [time for time in (self.oldest_unfinished, self._next_due()) if time is not None]
        return max(0, now_ms - min(due).milliseconds) / 1000 if due else 0

    def batches_behind(self, now_ms: int) -> int:
        """Return the number of batches that are due and have not succeeded, planned or not. A batch that runs counts.

        Args:
            now_ms: the moment, in milliseconds since the Unix epoch.
        """
        due = self._next_due()
        late = 0 if due is None else max(0, (now_ms - due.milliseconds) // self.interval.milliseconds + 1)
        return self.unfinished + late

    def _next_due(self) -> Time | None:
        """Return the first batch time without a plan; None before the first plan."""
        return None if self.last_planned is None else self.last_planned + self.interval


def status_fields(status: DriverStatus) -> dict[str, Any]:
    """Return the status as JSON values; batch times and moments in milliseconds."""
    error = status.last_error
    return {
        "epoch": status.epoch,
        "application": status.application,
        "host": status.host,
        "pid": status.pid,
        "started": status.started_ms,
        "written": status.written_ms,
        "interval": status.interval.milliseconds,
        "last_planned": _ms(status.last_planned),
        "unfinished": status.unfinished,
        "oldest_unfinished": _ms(status.oldest_unfinished),
        "failed": status.failed,
        "waiting": status.waiting,
        "recent": [_batch_fields(batch) for batch in status.recent],
        "lag": [_lag_fields(lag) for lag in status.lag],
        **({"rates": {str(stream): rate for stream, rate in status.rates.items()}} if status.rates else {}),
        "last_error": None
        if error is None
        else {"at": error.at_ms, "text": error.text, "batch": _ms(error.batch), "operation": error.operation},
        **({} if status.state_error is None else {"state_error": status.state_error}),
        **({} if status.outage is None else {"outage": _outage_fields(status.outage)}),
        "ended": status.ended,
        **({} if status.metrics_url is None else {"metrics": status.metrics_url}),
        **({} if status.ui_url is None else {"page": status.ui_url}),
        **({} if status.process is None else {"process": status.process}),
        **({"supervised": True} if status.supervised else {}),
    }


def _batch_fields(batch: BatchFigures) -> dict[str, Any]:
    """Return the fields of a batch; record errors, figures and the slowest output only if there are any."""
    return {
        "time": batch.time.milliseconds,
        "records": batch.records,
        "scheduling_delay": batch.scheduling_delay_ms,
        "processing": batch.processing_ms,
        "failed": batch.failed,
        **({"record_errors": batch.record_errors} if batch.record_errors else {}),
        **({"figures": dict(batch.figures)} if batch.figures else {}),
        **({} if batch.slowest is None else {"slowest": [batch.slowest.name, batch.slowest.ms]}),
    }


def _outage_fields(outage: Outage) -> dict[str, Any]:
    """Return the fields of an outage."""
    return {"since": outage.since_ms, "until": outage.until_ms, "text": outage.text, "first": _ms(outage.first)}


def _lag_fields(lag: StreamLag) -> dict[str, Any]:
    """Return the fields of a lag, without unknown ones."""
    known = {"limited_by": lag.limited_by, "unplanned": lag.unplanned, "at": lag.at_ms}
    fields = {"stream": lag.stream, "description": lag.description, "records": lag.records}
    return fields | {key: value for key, value in known.items() if value is not None}


def status_of(fields: format.Fields) -> DriverStatus:
    """Make a status from its fields: the inverse of `status_fields`."""
    error = fields["last_error"]
    return DriverStatus(
        application=fields["application"],
        epoch=fields["epoch"],
        host=fields["host"],
        pid=fields["pid"],
        started_ms=moment(fields["started"]),
        written_ms=moment(fields["written"]),
        interval=positive(fields["interval"]),
        last_planned=_time(fields["last_planned"]),
        unfinished=fields["unfinished"],
        oldest_unfinished=_time(fields["oldest_unfinished"]),
        failed=fields["failed"],
        waiting=fields["waiting"],
        recent=tuple(map(_batch_of, fields["recent"])),
        lag=tuple(
            StreamLag(lag["stream"], lag["description"], lag["records"], lag.get("limited_by"), lag.get("unplanned"), lag.get("at"))
            for lag in fields["lag"]
        ),
        rates={int(stream): rate for stream, rate in fields.get("rates", {}).items()},
        last_error=None if error is None else LastError(moment(error["at"]), error["text"], _time(error["batch"]), error["operation"]),
        state_error=fields.get("state_error"),
        outage=_outage_of(fields["outage"]) if "outage" in fields else None,
        ended=fields["ended"],
        metrics_url=fields.get("metrics"),
        ui_url=fields.get("page"),
        process=fields.get("process"),
        supervised=fields.get("supervised", False),
    )


def _batch_of(b: Mapping[str, Any]) -> BatchFigures:
    """Make a batch from its fields: the inverse of `_batch_fields`."""
    return BatchFigures(
        Time(b["time"]),
        b["records"],
        b["scheduling_delay"],
        b["processing"],
        b["failed"],
        b.get("record_errors", 0),
        b.get("figures", {}),
        SlowestOutput(*b["slowest"][:2]) if "slowest" in b else None,
    )


def _outage_of(fields: Mapping[str, Any]) -> Outage:
    """Make an outage from its fields: the inverse of `_outage_fields`."""
    return Outage(moment(fields["since"]), moment(fields["until"]), fields["text"], _time(fields["first"]))


_RECORDS = EpochRecords(names.STATUS, "status", status_of)


def write_status(store: FileStore, status: DriverStatus) -> None:
    """Store the status in place of the last one of its driver. Blocks: one write. StorageError."""
    _RECORDS.replace(store, status.epoch, status_fields(status))


def drop_statuses_before(store: FileStore, epoch: int) -> None:
    """Delete the records of drivers of lower epochs. Blocks: one listing, and a request for each record. StorageError."""
    _RECORDS.delete_before(store, epoch)


def read_status(store: FileStore) -> DriverStatus | None:
    """Read the record of the highest epoch; None if there is none. Blocks: one listing, and one read if there is a record.

    Raises:
        CorruptRecordError: the record is damaged.
        FormatVersionError: a newer kstream has written the record.
        StorageError: the store failed.
    """
    return _RECORDS.newest(store)


def _ms(time: Time | None) -> int | None:
    """Return a batch time in milliseconds; None for None."""
    return None if time is None else time.milliseconds


def _time(ms: int | None) -> Time | None:
    """Return a batch time from milliseconds; None for None."""
    return None if ms is None else Time(ms)
