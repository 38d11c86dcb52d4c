"""BatchLines: one line in the log for each batch that has ended, for people, with its figures as fields for machines.

A batch never waits for its line: the thread of the listeners writes it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kstream.batch import BatchInfo, SlowestOutput, slowest_output
from kstream.batch.figures import PARTS, declared
from kstream.batch_time import Duration, Time, format_batch_time
from kstream.listener import StreamingListener, StreamingListenerBatchCompleted

logger = logging.getLogger("kstream.batches")
"""A logger of its own, so that a program can switch these lines off, or send them elsewhere."""


_is_told = False


def tell_of_lines() -> None:
    """Say once in a process that there could be a line for each batch. Call it where nobody has set the log up."""
    global _is_told
    if not _is_told:
        _is_told = True
        logger.warning("only warnings are shown here: kstream.log(), before the context is made, shows a line for each batch")


def nobody_has_set_the_log_up() -> bool:
    """Return whether Python prints the warnings of kstream by itself, for want of a handler."""
    return not logger.hasHandlers() and logger.getEffectiveLevel() == logging.WARNING


class BatchLines(StreamingListener):
    """Logs a line for each batch, from INFO up. Called on the listeners' thread.

    Args:
        interval: the batch interval.
    """

    def __init__(self, interval: Duration) -> None:
        self._interval = interval

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Log the line of a batch that has ended."""
        if logger.isEnabledFor(logging.INFO):
            fields = fields_of(batchCompleted.info)
            logger.info("%s", line_of(fields, self._interval), extra=fields)


def fields_of(info: BatchInfo) -> dict[str, Any]:
    """Return the figures of a batch that has ended, by their names in the JSON log. Times are in milliseconds; None is unknown. Pure.

    `lag_records` is what was in the logs after the batch when it was planned. `behind_ms` is how long after its batch time the batch has
    ended: that late its results are. A batch that ends before its batch time, ahead of a clock that was set back, is not late.
    `limited_by` is why the batch did not take all records that were there. `backpressure_rates` are the rates under which it was planned,
    by stream id. Each figure that was measured is there by its name. `slowest_output` is the output operation that took the longest.
    """
    inputs = {number: source.progress for number, source in sorted(info.inputs.items())}
    lags = [lag for progress in inputs.values() if (lag := progress.lag) is not None]
    reasons: set[str] = {reason for progress in inputs.values() if (reason := progress.limited_by) is not None}
    limits = ", ".join(sorted(reasons))
    rates = {str(number): rate for number, progress in inputs.items() if (rate := progress.backpressure_rate) is not None}
    end, slowest = info.processing_end_ms, slowest_output(info)
    return {
        "batch_time": info.batch_time.milliseconds,
        "records": info.numRecords(),
        **({"record_errors": info.numRecordErrors()} if info.numRecordErrors() else {}),
        "scheduling_delay_ms": info.scheduling_delay_ms,
        "processing_ms": info.processing_delay_ms,
        "behind_ms": None if end is None else max(0, end - info.batch_time.milliseconds),
        "lag_records": sum(lags) if lags else None,
        **({"limited_by": limits} if limits else {}),
        **({"backpressure_rates": rates} if rates else {}),
        **{found.field.name: found.value for found in info.figures},
        **({} if slowest is None else {"slowest_output": slowest.name, "slowest_output_ms": slowest.ms}),
        "failed": info.has_failed,
    }


def line_of(fields: dict[str, Any], interval: Duration) -> str:
    """Return the line of a batch, without unknown figures and without those that were measured as 0. Pure.

    A batch that took longer than its interval, and so lets later ones wait, names its slowest output operation.

    Args:
        fields: as of `fields_of`.
        interval: the batch interval.
    """
    lag, behind = fields["lag_records"], fields["behind_ms"]
    parts = [
        f"{fields['records']} records",
        f"{fields['record_errors']} with an error" if "record_errors" in fields else None,
        _ms("scheduling delay", fields["scheduling_delay_ms"]),
        _ms("processing", fields["processing_ms"]),
        None if lag is None else f"lag {lag} records",
        f"limited by {fields['limited_by']}" if "limited_by" in fields else None,
        _rates(fields.get("backpressure_rates", {})),
        *(figure.text(fields[figure.name]) for part in PARTS for figure in declared(part) if fields.get(figure.name)),
        None if behind is None else f"{behind / 1000:.1f} s behind",
        _slowest(fields, interval),
        "failed" if fields["failed"] else None,
    ]
    said = ", ".join(part for part in parts if part is not None)
    return f"batch {_local(Time(fields['batch_time']), behind, interval)}: {said}"


def _slowest(fields: Mapping[str, Any], interval: Duration) -> str | None:
    """Return the sentence about the slowest output operation of a batch that took longer than its interval; None for another batch."""
    processing: int | None = fields["processing_ms"]
    if processing is None or processing <= interval.milliseconds or "slowest_output" not in fields:
        return None
    return SlowestOutput(fields["slowest_output"], fields["slowest_output_ms"]).text(processing)


def _rates(rates: Mapping[str, int]) -> str | None:
    """Return the rates of back-pressure, with their streams if there are several; None without one."""
    if len(rates) == 1:
        return f"back-pressure {next(iter(rates.values()))} a second"
    return "back-pressure " + ", ".join(f"{rate} a second of stream {stream}" for stream, rate in rates.items()) if rates else None


def _ms(what: str, milliseconds: int | None) -> str | None:
    """Return a named time; None if it is unknown."""
    return None if milliseconds is None else f"{what} {milliseconds} ms"


def _local(time: Time, behind: int | None, interval: Duration) -> str:
    """Return the local time of a batch; with its date if the batch ended on another day."""
    clock, day = format_batch_time(time, interval), time.to_datetime().date()
    ended_on = Time(time.milliseconds + (behind or 0)).to_datetime().date()
    return clock if day == ended_on else f"{day} {clock}"
